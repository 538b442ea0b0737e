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
