-- Locks the closings of reservations, in the order given, which is the same in
-- every node. position counts the reservations from 1.
SELECT k.position, c.rank, c.body, c.minted, c.labels::text
  FROM unnest($1::date[], $2::text[], $3::uuid[]) WITH ORDINALITY AS k (month, account, reservation, position)
  JOIN closings c ON c.month = k.month AND c.account = k.account AND c.reservation = k.reservation
 ORDER BY k.position
   FOR UPDATE OF c
