-- So many closings of one month after a position, and which of them are of the
-- span and have the labels.
SELECT account, reservation, minted >= $4 AND minted < $5 AND labels @> $6::jsonb
  FROM closings
 WHERE month = $1 AND (account, reservation) > ($2, $3::uuid)
 ORDER BY account, reservation
 LIMIT $7
