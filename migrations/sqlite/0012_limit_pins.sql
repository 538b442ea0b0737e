-- Modes at which limits are held, whatever the policy states. PostgreSQL and SQLite
-- have the same columns with the same meaning; one implementation reads both.

-- +goose Up

-- One row a pin, named by what it holds. As plans (0002_policy.sql), and a change of
-- them counts the policy's version up like any other. A pin that has ended by its
-- time may still stand here.
CREATE TABLE limit_pins (
    name       TEXT PRIMARY KEY,
    document   TEXT NOT NULL,
    changed_in INTEGER NOT NULL
) STRICT;

-- As before (0006_policy.sql), and admits pins: a CHECK can't be changed in place.
CREATE TABLE policy_changes_new (
    version       INTEGER NOT NULL,
    seq           INTEGER NOT NULL, -- from 1 in each version
    changed_at_us INTEGER NOT NULL,
    changed_by    TEXT NOT NULL,
    kind          TEXT NOT NULL CHECK (kind IN ('plan', 'pool', 'account', 'price', 'pin')),
    name          TEXT NOT NULL,
    old_document  TEXT,
    new_document  TEXT,
    PRIMARY KEY (version, seq),
    CHECK (old_document IS NOT NULL OR new_document IS NOT NULL)
) STRICT;

INSERT INTO policy_changes_new (version, seq, changed_at_us, changed_by, kind, name, old_document, new_document)
SELECT version, seq, changed_at_us, changed_by, kind, name, old_document, new_document FROM policy_changes;

DROP TABLE policy_changes;

ALTER TABLE policy_changes_new RENAME TO policy_changes;

CREATE INDEX policy_changes_by_object ON policy_changes (kind, name, version);
