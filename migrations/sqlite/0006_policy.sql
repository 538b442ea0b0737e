-- Prices of models in the policy, and what grants covered of ended periods.
-- PostgreSQL and SQLite have the same columns with the same meaning; one
-- implementation reads both. (PostgreSQL also tells listeners when a version
-- moves; here brokers ask.)

-- +goose Up

-- One row a model, named provider/model: all its prices, each from its instant
-- on. As plans (0002_policy.sql).
CREATE TABLE model_prices (
    name       TEXT PRIMARY KEY,
    document   TEXT NOT NULL,
    changed_in INTEGER NOT NULL
) STRICT;

-- As before (0002_policy.sql), and admits prices: a CHECK can't be changed in
-- place.
CREATE TABLE policy_changes_new (
    version       INTEGER NOT NULL,
    seq           INTEGER NOT NULL, -- from 1 in each version
    changed_at_us INTEGER NOT NULL,
    changed_by    TEXT NOT NULL,
    kind          TEXT NOT NULL CHECK (kind IN ('plan', 'pool', 'account', 'price')),
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

-- What a grant of an account covered of a period's use, once the period or the
-- grant has ended. The period '' stands for all before the others together.
-- Rows go with their grant. A change of them counts the policy's version up and
-- has no row in policy_changes: nobody asked for it.
CREATE TABLE grant_uses (
    account    TEXT NOT NULL,
    grant_name TEXT NOT NULL,
    period     TEXT NOT NULL,
    covered    INTEGER NOT NULL CHECK (covered >= 0), -- in the unit of the quota's meter
    PRIMARY KEY (account, grant_name, period)
) STRICT;
