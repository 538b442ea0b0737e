-- Usage rows of one account in all periods.
SELECT limit_id, scope, period, meter, used, version
  FROM usage
 WHERE account = $1
 ORDER BY limit_id, scope, meter, period
 LIMIT $2
