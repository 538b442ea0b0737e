-- Writes what a transaction adds to the reports.
INSERT INTO usage_deltas (hour, used, held, calls, labels, account, meter)
SELECT d.hour, d.used, d.held, d.calls, d.labels, d.account, d.meter
  FROM unnest($1::timestamptz[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[], $6::text[], $7::text[])
       AS d (hour, used, held, calls, labels, account, meter)
