-- The first days of the months that have partitions of both tables and take
-- rows.
SELECT to_date(right(c.relname, 7), 'YYYY_MM')
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent IN ('closings'::regclass, 'entries'::regclass)
   AND c.relname ~ '^(closings|entries)_[0-9]{4}_[0-9]{2}$'
   AND to_date(right(c.relname, 7), 'YYYY_MM') NOT IN (SELECT month FROM retired_months)
 GROUP BY 1 HAVING count(*) = 2
