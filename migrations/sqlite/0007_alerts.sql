-- Alerts: thresholds of quotas that were reached, and what became of telling a
-- webhook (an outbox). PostgreSQL and SQLite have the same columns with the
-- same meaning; one implementation reads both. Instants (*_us) are
-- microseconds since 1970-01-01 UTC, set by the broker's clock.

-- +goose Up

-- One row a threshold of a usage row. The primary key is what raises it once,
-- however many brokers see it reached at the same time.
CREATE TABLE quota_alerts (
    account          TEXT NOT NULL,
    limit_id         TEXT NOT NULL,
    scope            TEXT NOT NULL,
    period           TEXT NOT NULL,
    percent          INTEGER NOT NULL CHECK (percent >= 1),
    id               TEXT NOT NULL UNIQUE, -- a function of the primary key; the webhook's message id
    limit_name       TEXT NOT NULL,
    meter            TEXT NOT NULL,
    used             INTEGER NOT NULL, -- in the meter's unit, when it was raised
    amount           INTEGER NOT NULL, -- what the quota allowed then
    raised_at_us     INTEGER NOT NULL,
    attempts         INTEGER NOT NULL DEFAULT 0, -- deliveries that were begun
    next_attempt_us  INTEGER, -- NULL: nothing is to be delivered (any more). Whoever delivers moves it ahead first, so that nobody else does meanwhile.
    delivered_at_us  INTEGER,
    failed_at_us     INTEGER, -- when it was given up
    last_error       TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (account, limit_id, scope, period, percent),
    CHECK (delivered_at_us IS NULL OR failed_at_us IS NULL),
    CHECK (next_attempt_us IS NULL OR (delivered_at_us IS NULL AND failed_at_us IS NULL))
) STRICT;

CREATE INDEX quota_alerts_pending ON quota_alerts (next_attempt_us) WHERE next_attempt_us IS NOT NULL;
CREATE INDEX quota_alerts_newest ON quota_alerts (raised_at_us, id);
CREATE INDEX quota_alerts_of_account ON quota_alerts (account, raised_at_us, id);
