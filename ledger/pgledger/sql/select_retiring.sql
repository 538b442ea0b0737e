-- The partitions of months that are not kept, or whose detaching has begun, the
-- oldest month first, closings before entries.
SELECT m.month, i.inhparent::regclass::text, i.inhrelid::regclass::text, i.inhdetachpending,
       EXISTS (SELECT FROM retired_months r WHERE r.month = m.month)
  FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid
 CROSS JOIN LATERAL (SELECT to_date(right(c.relname, 7), 'YYYY_MM') AS month) m
 WHERE i.inhparent IN ('closings'::regclass, 'entries'::regclass)
   AND c.relname ~ '^(closings|entries)_[0-9]{4}_[0-9]{2}$'
   AND (m.month < (SELECT first_month FROM kept_months) OR EXISTS (SELECT FROM retired_months r WHERE r.month = m.month))
 ORDER BY m.month, c.relname
