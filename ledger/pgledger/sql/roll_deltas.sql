-- Moves deltas into the sums: whatever this deletes is added in the same
-- statement, so each delta counts once. Only one transaction at a time may run
-- it (maintain.go), which also keeps two from locking sums in other orders.
WITH moved AS (
    DELETE FROM usage_deltas
     WHERE ctid = ANY (ARRAY (SELECT ctid FROM usage_deltas LIMIT $1))
    RETURNING hour, account, labels, meter, used, held, calls
), hours AS (
    INSERT INTO usage_hours AS kept (hour, account, labels, meter, used, held, calls)
    SELECT hour, account, labels, meter, report_sum(sum(used)), report_sum(sum(held)), report_sum(sum(calls))
      FROM moved GROUP BY hour, account, labels, meter
    ON CONFLICT (account, hour, labels, meter) DO UPDATE
       SET used = report_sum(kept.used::numeric + excluded.used),
           held = report_sum(kept.held::numeric + excluded.held),
           calls = kept.calls + excluded.calls
), days AS (
    INSERT INTO usage_days AS kept (day, account, labels, meter, used, held, calls)
    SELECT (hour AT TIME ZONE 'UTC')::date AS day, account, labels, meter,
           report_sum(sum(used)), report_sum(sum(held)), report_sum(sum(calls))
      FROM moved GROUP BY 1, account, labels, meter
    ON CONFLICT (account, day, labels, meter) DO UPDATE
       SET used = report_sum(kept.used::numeric + excluded.used),
           held = report_sum(kept.held::numeric + excluded.held),
           calls = kept.calls + excluded.calls
)
SELECT count(*) FROM moved
