-- Usage rows of one account, in one period or in all.
SELECT limit_id, scope, period, meter, used, version
  FROM usage
 WHERE account = $1 AND ($2 = '' OR period = $2)
 ORDER BY limit_id, scope, meter, period
 LIMIT $3
