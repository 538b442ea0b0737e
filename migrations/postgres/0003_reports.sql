-- What reports are made of: sums of what closings charged, had held and were,
-- by hour and by day (UTC), for each account, set of labels and meter. Only
-- lines of totals count. The sums stay when months of entries are detached.

-- +goose Up

-- Each set of labels once, so that the rows of sums are narrow. The id is the
-- first 16 bytes of the SHA-256 of the set's text, so a delta can name it
-- without a look-up. Rows are never deleted: brokers remember which exist.
CREATE TABLE label_sets (
    id     uuid PRIMARY KEY,
    labels jsonb NOT NULL    -- object of strings
);
CREATE INDEX label_sets_by_label ON label_sets USING gin (labels jsonb_path_ops);

-- What transactions added to the reports and nobody has rolled up yet. Appends
-- only insert here: two of them never wait for each other, as they would for
-- the row of a sum. Rolled up every few seconds, so it is short, and it has no
-- index: it is only ever read as a whole. Dead rows are cleared away early.
CREATE TABLE usage_deltas (
    hour    timestamptz NOT NULL,          -- first instant of the UTC hour in which the reservations were made
    used    bigint NOT NULL,               -- difference to what was charged, in the meter's unit
    held    bigint NOT NULL CHECK (held >= 0),
    calls   bigint NOT NULL CHECK (calls >= 0),
    labels  uuid NOT NULL,                 -- label_sets.id
    account text COLLATE "C" NOT NULL,
    meter   text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- The sums. Plain tables: they are a small part of the ledger and are kept for
-- good, so there is no month to be detached. Rows come in the order of time,
-- so a BRIN index finds a span of all accounts; the primary key finds that of
-- one. No index covers a sum and pages keep room: every update is heap-only.
CREATE TABLE usage_hours (
    hour    timestamptz NOT NULL,
    used    bigint NOT NULL,
    held    bigint NOT NULL,
    calls   bigint NOT NULL,
    labels  uuid NOT NULL,
    account text COLLATE "C" NOT NULL,
    meter   text COLLATE "C" NOT NULL,
    PRIMARY KEY (account, hour, labels, meter)
) WITH (fillfactor = 80);
CREATE INDEX usage_hours_by_time ON usage_hours USING brin (hour) WITH (pages_per_range = 32);

CREATE TABLE usage_days (
    day     date NOT NULL,
    used    bigint NOT NULL,
    held    bigint NOT NULL,
    calls   bigint NOT NULL,
    labels  uuid NOT NULL,
    account text COLLATE "C" NOT NULL,
    meter   text COLLATE "C" NOT NULL,
    PRIMARY KEY (account, day, labels, meter)
) WITH (fillfactor = 80);
CREATE INDEX usage_days_by_time ON usage_days USING brin (day) WITH (pages_per_range = 32);

-- A sum as the tables above keep it. What would pass 64 bits stays at their
-- end: a sum for reports must not stop the rolling of all others.
CREATE FUNCTION report_sum(exact numeric) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(greatest(exact, -9223372036854775807), 9223372036854775807)::bigint;

-- What was posted before there were reports. What it held is not known. These
-- sets of labels have ids of their own, which is as good: reports go by what is
-- in a set.
INSERT INTO label_sets (id, labels)
SELECT DISTINCT encode(substring(sha256(convert_to(labels::text, 'UTF8')) FOR 16), 'hex')::uuid, labels FROM closings;

INSERT INTO usage_deltas (hour, used, held, calls, labels, account, meter)
SELECT date_trunc('hour', c.minted, 'UTC') AS hour, report_sum(sum(t.used)), 0, count(*),
       encode(substring(sha256(convert_to(c.labels::text, 'UTF8')) FOR 16), 'hex')::uuid AS labels, c.account, t.meter
  FROM (SELECT e.month, e.account, e.reservation, u.meter, sum(e.amount) AS used
          FROM entries e JOIN usage u ON u.id = e.usage_id AND u.limit_id = ''
         GROUP BY e.month, e.account, e.reservation, u.meter) t
  JOIN closings c USING (month, account, reservation)
 GROUP BY 1, 5, c.account, t.meter;
