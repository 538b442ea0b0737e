-- What is posted without a closing: adjustments by hand and corrections of
-- prices. And a log of which usage rows changed, for auditors.

-- +goose Up

-- One row an adjustment. It has one entry, whose reservation is the
-- adjustment's id and whose month is that of at. Rows are never changed.
CREATE TABLE adjustments (
    id        uuid PRIMARY KEY,
    body      uuid NOT NULL,                     -- hash of the request
    account   text COLLATE "C" NOT NULL,
    limit_id  text COLLATE "C" NOT NULL,
    scope     text COLLATE "C" NOT NULL,
    period    text COLLATE "C" NOT NULL,
    meter     text COLLATE "C" NOT NULL,
    amount    bigint NOT NULL CHECK (amount <> 0),
    at        timestamptz NOT NULL,
    made_by   text NOT NULL,
    reason    text NOT NULL,
    posted_at timestamptz NOT NULL DEFAULT now() -- start of the transaction
);

CREATE INDEX adjustments_by_account ON adjustments (account, at, id);

-- One row a correction of prices. Rows are never changed.
CREATE TABLE corrections (
    id        uuid PRIMARY KEY,
    at        timestamptz NOT NULL,
    made_by   text NOT NULL,
    reason    text NOT NULL,
    posted_at timestamptz NOT NULL DEFAULT now() -- start of the transaction that posted the first of it
);

-- The correction that posted the entry; NULL for the entries of closings and
-- adjustments.
ALTER TABLE entries ADD COLUMN correction uuid;

-- Which usage rows a transaction changed: one row a transaction, so that the
-- log costs a writer almost nothing, and no index on a column of usage that
-- changes, which would end heap-only updates.
--
-- A reader remembers a snapshot. What is not visible in it and visible now was
-- committed in between, however early its transaction began.
CREATE TABLE usage_changes (
    xid       xid8 PRIMARY KEY DEFAULT pg_current_xact_id(),
    usage_ids uuid[] NOT NULL
);

-- It served what usage_changes serves now, and would skip late commits.
DROP INDEX closings_by_posting;

-- Ids do not compress: don't try.
ALTER TABLE usage_changes ALTER COLUMN usage_ids SET STORAGE EXTERNAL;

-- How far the log was pruned: of the transactions that are visible in pruned,
-- rows may be gone. next becomes pruned when it is old enough.
CREATE TABLE usage_changes_pruned (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    pruned     pg_snapshot,
    next       pg_snapshot NOT NULL,
    next_taken timestamptz NOT NULL
);

INSERT INTO usage_changes_pruned (next, next_taken) VALUES (pg_current_snapshot(), now());
