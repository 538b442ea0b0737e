-- Writes sets of labels that are not there, in the order of their ids, which is
-- the same in every node: whoever writes one that another transaction is about
-- to write waits for it.
INSERT INTO label_sets (id, labels)
SELECT s.id, s.labels::jsonb
  FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS s (id, labels, position)
 ORDER BY s.position
ON CONFLICT (id) DO NOTHING
