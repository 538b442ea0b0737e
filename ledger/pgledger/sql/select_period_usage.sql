-- Usage rows of one account in one period, in the order of the index: a limit
-- reads no more than it returns.
SELECT limit_id, scope, period, meter, used, version
  FROM usage
 WHERE account = $1 AND period = $2
 ORDER BY limit_id, scope, meter
 LIMIT $3
