-- Lets the log of changes be pruned up to the snapshot that was taken a while
-- ago ($1, an interval), and takes the next one. After a dump was restored into
-- a server that counts lower, what was taken elsewhere means nothing here.
UPDATE usage_changes_pruned
   SET pruned = CASE WHEN pg_snapshot_xmax(next) <= pg_snapshot_xmax(pg_current_snapshot()) THEN next END,
       next = pg_current_snapshot(), next_taken = now()
 WHERE next_taken <= now() - $1::interval
    OR pg_snapshot_xmax(next) > pg_snapshot_xmax(pg_current_snapshot())
