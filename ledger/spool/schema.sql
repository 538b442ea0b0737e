-- The spool of one node, version 1: closings that were acknowledged and are not
-- in the ledger yet. Instants (*_us) are microseconds since 1970-01-01 UTC. The
-- columns of a closing are those of closings in migrations/sqlite.

-- At most one row a reservation and month: the closing of the highest rank. A
-- closing of a higher rank takes a new position, so that removing what was read
-- before never removes it.
CREATE TABLE spooled (
    position      INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which they are posted
    account       TEXT NOT NULL,
    reservation   BLOB NOT NULL CHECK (length(reservation) = 16),
    month         INTEGER NOT NULL,
    rank          INTEGER NOT NULL,
    late          INTEGER NOT NULL,
    degraded      INTEGER NOT NULL,
    minted_us     INTEGER NOT NULL,
    closed_at_us  INTEGER NOT NULL,
    spooled_at_us INTEGER NOT NULL,
    body          BLOB NOT NULL CHECK (length(body) = 16),
    price_version TEXT NOT NULL,
    labels        TEXT NOT NULL, -- JSON object of strings
    outcome       BLOB NOT NULL,
    lines         TEXT NOT NULL, -- JSON array of objects
    token         BLOB NOT NULL, -- what the caller keeps beside the closing
    UNIQUE (account, reservation, month)
) STRICT;

-- Closings that were acknowledged and can't be in the ledger: it refuses them,
-- or another closing of the reservation was there first. Rows are kept until an
-- operator deletes them.
CREATE TABLE filed (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    filed_at_us   INTEGER NOT NULL,
    reason        TEXT NOT NULL CHECK (reason IN ('conflict', 'refused')),
    detail        TEXT NOT NULL,
    account       TEXT NOT NULL,
    reservation   BLOB NOT NULL,
    month         INTEGER NOT NULL,
    rank          INTEGER NOT NULL,
    late          INTEGER NOT NULL,
    degraded      INTEGER NOT NULL,
    minted_us     INTEGER NOT NULL,
    closed_at_us  INTEGER NOT NULL,
    spooled_at_us INTEGER NOT NULL,
    body          BLOB NOT NULL,
    price_version TEXT NOT NULL,
    labels        TEXT NOT NULL,
    outcome       BLOB NOT NULL,
    lines         TEXT NOT NULL,
    token         BLOB NOT NULL
) STRICT;

-- Always empty: what is written here shows whether there is room.
CREATE TABLE probe (room BLOB NOT NULL) STRICT;

PRAGMA user_version = 1;
