-- One closing in full.
SELECT minted, closed_at, rank, body, outcome, late, degraded, price_version, labels::text
  FROM closings
 WHERE month = $1 AND account = $2 AND reservation = $3
