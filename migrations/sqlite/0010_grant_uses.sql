-- What a grant covered says by itself what it was worked out from, so that
-- another plan, unit, zone or anchor day changes nothing about it. PostgreSQL and
-- SQLite have the same columns with the same meaning; one implementation reads
-- both.

-- +goose Up

-- One row for the period that runs, which is open, and for each of the newest
-- ones that are over: waiting while open reservations may still change it. Rows
-- of before this file have limit_id '': the rest is then as of the account now.
CREATE TABLE grant_uses_new (
    account    TEXT NOT NULL,
    grant_name TEXT NOT NULL,
    limit_id   TEXT NOT NULL,
    period     TEXT NOT NULL,
    meter      TEXT NOT NULL,
    start_us   INTEGER NOT NULL,
    end_us     INTEGER NOT NULL,
    own        INTEGER NOT NULL CHECK (own >= 0), -- what the quota itself allowed in the period
    covered    INTEGER NOT NULL CHECK (covered >= 0), -- in the unit of the quota's meter
    state      TEXT NOT NULL CHECK (state IN ('', 'open', 'waiting', 'settled')), -- '' where the period is ''
    PRIMARY KEY (account, grant_name, limit_id, period)
) STRICT;

INSERT INTO grant_uses_new (account, grant_name, limit_id, period, meter, start_us, end_us, own, covered, state)
SELECT account, grant_name, '', period, '', 0, 0, 0, covered, 'settled' FROM grant_uses;

DROP TABLE grant_uses;

ALTER TABLE grant_uses_new RENAME TO grant_uses;
