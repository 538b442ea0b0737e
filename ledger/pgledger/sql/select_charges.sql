-- What reservations were charged so far, one row a reservation and usage row,
-- with the usage row's present state. position counts the reservations from 1.
SELECT k.position, e.usage_id, u.limit_id, u.scope, u.period, u.meter,
       sum(e.amount)::bigint AS charged, max(e.sequence) AS sequence, u.used, u.version
  FROM unnest($1::date[], $2::text[], $3::uuid[]) WITH ORDINALITY AS k (month, account, reservation, position)
  JOIN entries e ON e.month = k.month AND e.account = k.account AND e.reservation = k.reservation
  LEFT JOIN usage u ON u.id = e.usage_id
 GROUP BY k.position, e.usage_id, u.id
