-- As scan_closings.sql, of one account.
SELECT account, reservation, minted >= $4 AND minted < $5 AND labels @> $6::jsonb
  FROM closings
 WHERE month = $1 AND account = $2 AND reservation > $3::uuid
 ORDER BY reservation
 LIMIT $7
