-- What brokers learned of how long calls' outputs are. PostgreSQL and SQLite have
-- the same columns with the same meaning; one implementation reads both.

-- +goose Up

-- One row for each kind of calls. It may be lost: then it is learned again.
CREATE TABLE forecast_lengths (
    id        TEXT PRIMARY KEY CHECK (length(id) = 32),            -- hash of account, model, route and bound
    lengths   BLOB NOT NULL CHECK (length(lengths) <= 8192),       -- packed
    newest_us INTEGER NOT NULL                                     -- the instant of the newest
) STRICT;

CREATE INDEX forecast_lengths_by_age ON forecast_lengths (newest_us);
