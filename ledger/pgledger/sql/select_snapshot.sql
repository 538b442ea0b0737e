-- The snapshot from which a look at the changes starts.
SELECT pg_is_in_recovery(), pg_current_snapshot()::text
