-- What a grant covered says by itself what it was worked out from, so that
-- another plan, unit, zone or anchor day changes nothing about it. PostgreSQL and
-- SQLite have the same columns with the same meaning; one implementation reads
-- both.

-- +goose Up

-- One row for the period that runs, which is open, and for each of the newest
-- ones that are over: waiting while open reservations may still change it. Rows
-- of before this file have limit_id '': the rest is then as of the account now.
ALTER TABLE grant_uses
    ADD COLUMN limit_id TEXT COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN meter    TEXT NOT NULL DEFAULT '',
    ADD COLUMN start_us BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN end_us   BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN own      BIGINT NOT NULL DEFAULT 0 CHECK (own >= 0), -- what the quota itself allowed in the period
    ADD COLUMN state    TEXT NOT NULL DEFAULT 'settled' CHECK (state IN ('', 'open', 'waiting', 'settled')); -- '' where the period is ''

ALTER TABLE grant_uses DROP CONSTRAINT grant_uses_pkey;
ALTER TABLE grant_uses ADD PRIMARY KEY (account, grant_name, limit_id, period);
