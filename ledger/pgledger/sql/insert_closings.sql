-- Writes closings, in the order given, which is the same in every node. By
-- itself it fails when one of the reservations has a closing already.
INSERT INTO closings AS kept (
    month, account, reservation, rank, revision, late, degraded,
    minted, closed_at, body, price_version, labels, outcome)
SELECT date_trunc('month', c.minted AT TIME ZONE 'UTC')::date, c.account, c.reservation, c.rank, 1, c.late, c.degraded,
       c.minted, c.closed_at, c.body, c.price_version, c.labels::jsonb, c.outcome
  FROM unnest($1::text[], $2::uuid[], $3::smallint[], $4::boolean[], $5::boolean[],
              $6::timestamptz[], $7::timestamptz[], $8::uuid[], $9::text[], $10::text[], $11::bytea[])
       WITH ORDINALITY AS c (account, reservation, rank, late, degraded,
              minted, closed_at, body, price_version, labels, outcome, position)
 ORDER BY c.position
