-- Plans, pools and accounts, who changed them, API keys, and the keys that
-- sign reservation ids. PostgreSQL and SQLite have the same columns with the
-- same meaning; one implementation reads both. Instants (*_us) are
-- microseconds since 1970-01-01 UTC, set by the broker's clock.

-- +goose Up

-- One row a subject. It grows by one in the transaction that changes the
-- subject, before anything else in it: so writers of one subject wait for each
-- other on its row, and readers see cheaply whether anything changed.
CREATE TABLE versions (
    subject TEXT PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version >= 0)
) STRICT;

INSERT INTO versions (subject, version) VALUES ('policy', 0), ('api_keys', 0), ('mac_keys', 0);

-- A document is one object in the plan language, as the words of one plan,
-- pool or account stand in a policy file. changed_in is the version of the
-- policy that wrote it last.
CREATE TABLE plans (
    name       TEXT PRIMARY KEY,
    document   TEXT NOT NULL,
    changed_in INTEGER NOT NULL
) STRICT;

CREATE TABLE pools (
    name       TEXT PRIMARY KEY,
    document   TEXT NOT NULL,
    changed_in INTEGER NOT NULL
) STRICT;

CREATE TABLE accounts (
    name       TEXT PRIMARY KEY,
    document   TEXT NOT NULL,
    changed_in INTEGER NOT NULL
) STRICT;

-- Who changed what, and when: one row an object that a version added, changed
-- or removed. An added object has no old document, a removed one no new one.
-- Rows are never changed.
CREATE TABLE policy_changes (
    version       INTEGER NOT NULL,
    seq           INTEGER NOT NULL, -- from 1 in each version
    changed_at_us INTEGER NOT NULL,
    changed_by    TEXT NOT NULL,
    kind          TEXT NOT NULL CHECK (kind IN ('plan', 'pool', 'account')),
    name          TEXT NOT NULL,
    old_document  TEXT,
    new_document  TEXT,
    PRIMARY KEY (version, seq),
    CHECK (old_document IS NOT NULL OR new_document IS NOT NULL)
) STRICT;

CREATE INDEX policy_changes_by_object ON policy_changes (kind, name, version);

-- API keys. The key itself is not kept, only its SHA-256.
CREATE TABLE api_keys (
    id            TEXT PRIMARY KEY,
    name          TEXT NOT NULL,
    role          TEXT NOT NULL CHECK (role IN ('caller', 'admin')),
    accounts      TEXT NOT NULL, -- JSON array of account names; ["*"] is every account
    key_sha256    BLOB NOT NULL,
    last4         TEXT NOT NULL,
    created_at_us INTEGER NOT NULL,
    expires_at_us INTEGER,
    revoked_at_us INTEGER
) STRICT;

CREATE INDEX api_keys_by_creation ON api_keys (created_at_us, id);

-- The keys that authenticate reservation ids (HMAC-SHA-256). A key signs from
-- signs_from_us until the next one does, and verifies until a while after it
-- was retired.
CREATE TABLE mac_keys (
    id            INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND 65535),
    secret        BLOB NOT NULL,
    created_at_us INTEGER NOT NULL,
    signs_from_us INTEGER NOT NULL,
    retired_at_us INTEGER
) STRICT;
