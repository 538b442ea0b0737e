-- Adjustments of one account, the newest first, of those before an instant and
-- id where one is given.
SELECT id, body, limit_id, scope, period, meter, amount, at, made_by, reason
  FROM adjustments
 WHERE account = $1 AND ($2::timestamptz IS NULL OR (at, id) < ($2, $3::uuid))
 ORDER BY at DESC, id DESC
 LIMIT $4
