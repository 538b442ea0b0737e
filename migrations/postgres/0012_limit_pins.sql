-- Modes at which limits are held, whatever the policy states. PostgreSQL and SQLite
-- have the same columns with the same meaning; one implementation reads both.

-- +goose Up

-- One row a pin, named by what it holds. As plans (0002_policy.sql), and a change of
-- them counts the policy's version up like any other. A pin that has ended by its
-- time may still stand here.
CREATE TABLE limit_pins (
    name       TEXT COLLATE "C" PRIMARY KEY,
    document   TEXT NOT NULL,
    changed_in BIGINT NOT NULL
);

ALTER TABLE policy_changes DROP CONSTRAINT policy_changes_kind_check;
ALTER TABLE policy_changes ADD CONSTRAINT policy_changes_kind_check CHECK (kind IN ('plan', 'pool', 'account', 'price', 'pin'));
