-- Usage rows by id, from a server that takes writes: one row at least, with
-- whether the server is a standby.
SELECT pg_is_in_recovery(), u.id, u.used, u.version
  FROM (VALUES (1)) AS always LEFT JOIN usage u ON u.id = ANY ($1::uuid[])
