-- What reports are made of: sums of what closings charged, had held and were,
-- by hour and by day (UTC), for each account, set of labels and meter. Only
-- lines of totals count. One transaction writes at a time, so that Append adds
-- to the sums itself.

-- +goose Up

-- The labels of each set. A set without labels has no row. The id is the first
-- 16 bytes of the SHA-256 of the set's text.
CREATE TABLE label_values (
    labels BLOB NOT NULL CHECK (length(labels) = 16),
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (labels, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX label_values_by_value ON label_values (name, value);

-- The sums, in the order of time: what is written lies together, and so does
-- what a report reads.
CREATE TABLE usage_hours (
    hour    INTEGER NOT NULL,              -- hours since 1970-01-01 UTC
    account TEXT NOT NULL,
    labels  BLOB NOT NULL CHECK (length(labels) = 16),
    meter   TEXT NOT NULL,
    used    INTEGER NOT NULL,              -- in the meter's unit
    held    INTEGER NOT NULL CHECK (held >= 0),
    calls   INTEGER NOT NULL CHECK (calls >= 0),
    PRIMARY KEY (hour, account, labels, meter)
) STRICT, WITHOUT ROWID;

CREATE TABLE usage_days (
    day     INTEGER NOT NULL,              -- days since 1970-01-01 UTC
    account TEXT NOT NULL,
    labels  BLOB NOT NULL CHECK (length(labels) = 16),
    meter   TEXT NOT NULL,
    used    INTEGER NOT NULL,
    held    INTEGER NOT NULL CHECK (held >= 0),
    calls   INTEGER NOT NULL CHECK (calls >= 0),
    PRIMARY KEY (day, account, labels, meter)
) STRICT, WITHOUT ROWID;

-- What was posted before there were reports. What it held is not known. These
-- sets of labels have ids of their own, which is as good: reports go by what is
-- in a set.
CREATE TEMP TABLE old_sets AS
SELECT labels AS text, randomblob(16) AS id FROM (SELECT DISTINCT labels FROM closings);

INSERT INTO label_values (labels, name, value)
SELECT s.id, l.key, l.value FROM old_sets s, json_each(s.text) l;

INSERT INTO usage_hours (hour, account, labels, meter, used, held, calls)
SELECT c.minted_us / 3600000000, c.account, s.id, t.meter, sum(t.used), 0, count(*)
  FROM (SELECT e.month, e.account, e.reservation, u.meter, sum(e.amount) AS used
          FROM entries e JOIN usage u ON u.id = e.usage_id AND u.limit_id = ''
         GROUP BY e.month, e.account, e.reservation, u.meter) t
  JOIN closings c ON c.account = t.account AND c.reservation = t.reservation AND c.month = t.month
  JOIN old_sets s ON s.text = c.labels
 GROUP BY 1, 2, 3, 4;

INSERT INTO usage_days (day, account, labels, meter, used, held, calls)
SELECT hour / 24, account, labels, meter, sum(used), 0, sum(calls)
  FROM usage_hours GROUP BY 1, 2, 3, 4;

DROP TABLE old_sets;
