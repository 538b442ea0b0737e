-- The ledger: what was really spent. The same tables as in PostgreSQL, without
-- partitions. Instants (*_us) are microseconds since 1970-01-01 UTC.

-- +goose Up

-- One row an account, limit, scope, period and meter: the running sum of its
-- entries. limit_id and scope are empty in the rows of an account's totals.
-- The id is the first 16 bytes of the SHA-256 of the five columns
-- (ledger.UsageKey.ID).
CREATE TABLE usage (
    id            BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    account       TEXT NOT NULL,
    limit_id      TEXT NOT NULL,
    scope         TEXT NOT NULL,
    period        TEXT NOT NULL,
    meter         TEXT NOT NULL,
    used          INTEGER NOT NULL,                       -- in the meter's unit
    version       INTEGER NOT NULL CHECK (version >= 0),  -- + 1 a transaction that changes used
    changed_at_us INTEGER NOT NULL,
    UNIQUE (account, period, limit_id, scope, meter)
) STRICT;

-- One row a reservation: the closing of the highest rank.
CREATE TABLE closings (
    account       TEXT NOT NULL,
    reservation   BLOB NOT NULL CHECK (length(reservation) = 16),
    month         INTEGER NOT NULL,          -- UTC month of minted, as 202611
    rank          INTEGER NOT NULL CHECK (rank IN (1, 2)),   -- 1 expired, 2 refunded
    revision      INTEGER NOT NULL CHECK (revision >= 1),    -- how many closings this row has held
    late          INTEGER NOT NULL CHECK (late IN (0, 1)),
    degraded      INTEGER NOT NULL CHECK (degraded IN (0, 1)),
    minted_us     INTEGER NOT NULL,
    closed_at_us  INTEGER NOT NULL,
    posted_at_us  INTEGER NOT NULL,          -- when this revision was written
    body          BLOB NOT NULL CHECK (length(body) = 16),
    price_version TEXT NOT NULL,
    labels        TEXT NOT NULL,             -- JSON object of strings
    outcome       BLOB NOT NULL CHECK (length(outcome) <= 16384),
    PRIMARY KEY (account, reservation, month)
) STRICT;

-- One immutable row a line: the difference that a closing made to one usage
-- row. Each line of a closing has an entry when it is first posted, with
-- amount 0 too, so the entries of a reservation also tell its lines.
CREATE TABLE entries (
    account      TEXT NOT NULL,
    reservation  BLOB NOT NULL CHECK (length(reservation) = 16),
    month        INTEGER NOT NULL,
    sequence     INTEGER NOT NULL CHECK (sequence >= 1), -- from 1, without gaps, in each reservation
    usage_id     BLOB NOT NULL CHECK (length(usage_id) = 16),
    amount       INTEGER NOT NULL CHECK (amount BETWEEN -9007199254740991 AND 9007199254740991),
    posted_at_us INTEGER NOT NULL,
    PRIMARY KEY (account, reservation, month, sequence)
) STRICT, WITHOUT ROWID;
