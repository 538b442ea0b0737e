-- Deletes rows of the log that every mark which is still good has seen, and
-- those from another server, at most so many ($1).
DELETE FROM usage_changes
 WHERE xid IN (
       SELECT c.xid FROM usage_changes c, usage_changes_pruned p
        WHERE (c.xid < pg_snapshot_xmax(p.pruned) AND pg_visible_in_snapshot(c.xid, p.pruned))
           OR c.xid >= pg_snapshot_xmax(pg_current_snapshot())
        ORDER BY c.xid LIMIT $1
          FOR UPDATE OF c SKIP LOCKED)
