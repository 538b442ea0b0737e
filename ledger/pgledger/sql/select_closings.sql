-- Closings in full. position counts the reservations from 1.
SELECT k.position, c.minted, c.closed_at, c.rank, c.body, c.outcome, c.late, c.degraded, c.price_version, c.labels::text
  FROM unnest($1::date[], $2::text[], $3::uuid[]) WITH ORDINALITY AS k (month, account, reservation, position)
  JOIN closings c ON c.month = k.month AND c.account = k.account AND c.reservation = k.reservation
 ORDER BY k.position
