-- The usage rows that transactions changed which are visible in one snapshot
-- and were not in an earlier one, by id, after an id. The later snapshot is the
-- statement's own when none is given. One row at least, with that snapshot, and
-- whether the earlier one is too old, or of another server, to tell.
SELECT pg_is_in_recovery(), span.later::text, span.unknown, u.*
  FROM (SELECT s.earlier, coalesce($2::pg_snapshot, s.present) AS later,
               pg_snapshot_xmax(s.earlier) > pg_snapshot_xmax(s.present)
               OR coalesce(pg_snapshot_xmax(p.pruned) <= pg_snapshot_xmax(s.present)
                           AND (pg_snapshot_xmax(s.earlier) < pg_snapshot_xmax(p.pruned)
                                OR EXISTS (SELECT FROM pg_snapshot_xip(s.earlier) AS open (xid)
                                            WHERE pg_visible_in_snapshot(open.xid, p.pruned))),
                           false) AS unknown
          FROM (SELECT $1::pg_snapshot AS earlier, pg_current_snapshot() AS present) AS s
          LEFT JOIN usage_changes_pruned p ON true) AS span
  LEFT JOIN LATERAL (
       SELECT r.id, r.account, r.limit_id, r.scope, r.period, r.meter, r.used, r.version
         FROM (SELECT DISTINCT changed.id
                 FROM usage_changes c, unnest(c.usage_ids) AS changed (id)
                WHERE c.xid >= pg_snapshot_xmin(span.earlier) AND c.xid < pg_snapshot_xmax(span.later)
                  AND NOT pg_visible_in_snapshot(c.xid, span.earlier)
                  AND pg_visible_in_snapshot(c.xid, span.later)
                  AND changed.id > $3::uuid) AS found
         JOIN usage r ON r.id = found.id
        ORDER BY r.id
        LIMIT $4) AS u ON NOT span.unknown
