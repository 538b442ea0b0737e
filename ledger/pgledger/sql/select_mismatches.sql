-- Usage rows of one account that are not the sum of their entries, and sums of
-- entries without a usage row (its key is NULL). One statement: one snapshot.
SELECT coalesce(u.id, e.usage_id), u.limit_id, u.scope, u.period, u.meter,
       coalesce(u.used, 0), coalesce(u.version, 0), coalesce(e.amount, 0)::bigint
  FROM (SELECT * FROM usage WHERE account = $1) u
  FULL JOIN (SELECT usage_id, sum(amount) AS amount FROM entries WHERE account = $1 GROUP BY usage_id) e
         ON e.usage_id = u.id
 WHERE u.id IS NULL OR u.used <> coalesce(e.amount, 0)
 ORDER BY u.limit_id NULLS LAST, u.scope, u.meter, u.period
