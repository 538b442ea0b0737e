-- Adds differences to usage rows, in the order given, which is that of the ids
-- in every node, so two Appends can't deadlock on them. A row that does not
-- exist is made, with version 0 when its difference is 0; one that exists stays
-- as it is, and is not returned, when its difference is 0.
INSERT INTO usage AS kept (id, account, limit_id, scope, period, meter, used, version)
SELECT d.id, d.account, d.limit_id, d.scope, d.period, d.meter, d.difference, (d.difference <> 0)::int
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[])
       WITH ORDINALITY AS d (id, account, limit_id, scope, period, meter, difference, position)
 ORDER BY d.position
ON CONFLICT (id) DO UPDATE
   SET used = kept.used + excluded.used, version = kept.version + 1, changed_at = now()
 WHERE excluded.used <> 0
RETURNING id, used, version
