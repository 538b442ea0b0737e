-- Usage rows of one account that are not the sum of their entries and of what
-- they carry of months that have left, and sums of entries without a usage row
-- (its key is NULL). A month that was carried counts no more, also while its
-- partition is still here. One statement: one snapshot.
SELECT coalesce(u.id, e.usage_id), u.limit_id, u.scope, u.period, u.meter,
       coalesce(u.used, 0), coalesce(u.version, 0), (coalesce(u.carried, 0) + coalesce(e.amount, 0))::bigint
  FROM (SELECT * FROM usage WHERE account = $1) u
  FULL JOIN (SELECT usage_id, sum(amount) AS amount FROM entries
              WHERE account = $1 AND month NOT IN (SELECT month FROM retired_months) GROUP BY usage_id) e
         ON e.usage_id = u.id
 WHERE u.id IS NULL OR u.used <> u.carried + coalesce(e.amount, 0)
 ORDER BY u.limit_id NULLS LAST, u.scope, u.meter, u.period
