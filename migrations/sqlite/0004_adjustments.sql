-- What is posted without a closing: adjustments by hand and corrections of
-- prices. And in which order usage rows changed, for auditors. Instants (*_us)
-- are microseconds since 1970-01-01 UTC.

-- +goose Up

-- One row an adjustment. It has one entry, whose reservation is the
-- adjustment's id and whose month is that of at_us. Rows are never changed.
CREATE TABLE adjustments (
    id           BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    body         BLOB NOT NULL CHECK (length(body) = 16), -- hash of the request
    account      TEXT NOT NULL,
    limit_id     TEXT NOT NULL,
    scope        TEXT NOT NULL,
    period       TEXT NOT NULL,
    meter        TEXT NOT NULL,
    amount       INTEGER NOT NULL CHECK (amount <> 0),
    at_us        INTEGER NOT NULL,
    made_by      TEXT NOT NULL,
    reason       TEXT NOT NULL,
    posted_at_us INTEGER NOT NULL
) STRICT;

CREATE INDEX adjustments_by_account ON adjustments (account, at_us, id);

-- One row a correction of prices. Rows are never changed.
CREATE TABLE corrections (
    id           BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    at_us        INTEGER NOT NULL,
    made_by      TEXT NOT NULL,
    reason       TEXT NOT NULL,
    posted_at_us INTEGER NOT NULL -- when the first of it was posted
) STRICT;

-- The correction that posted the entry; NULL for the entries of closings and
-- adjustments.
ALTER TABLE entries ADD COLUMN correction BLOB CHECK (length(correction) = 16);

-- The number of the transaction that changed the row last. Transactions that
-- write follow one another, so numbers are in the order of their commits.
ALTER TABLE usage ADD COLUMN changed_in INTEGER NOT NULL DEFAULT 0;

CREATE INDEX usage_by_change ON usage (changed_in, id);
