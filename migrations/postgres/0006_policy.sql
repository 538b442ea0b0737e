-- Prices of models in the policy, what grants covered of ended periods, and a
-- word to every listener when a version moves. PostgreSQL and SQLite have the
-- same columns with the same meaning; one implementation reads both.

-- +goose Up

-- One row a model, named provider/model: all its prices, each from its instant
-- on. As plans (0002_policy.sql).
CREATE TABLE model_prices (
    name       TEXT COLLATE "C" PRIMARY KEY,
    document   TEXT NOT NULL,
    changed_in BIGINT NOT NULL
);

ALTER TABLE policy_changes DROP CONSTRAINT policy_changes_kind_check;
ALTER TABLE policy_changes ADD CONSTRAINT policy_changes_kind_check CHECK (kind IN ('plan', 'pool', 'account', 'price'));

-- What a grant of an account covered of a period's use, once the period or the
-- grant has ended. The period '' stands for all before the others together.
-- Rows go with their grant. A change of them counts the policy's version up and
-- has no row in policy_changes: nobody asked for it.
CREATE TABLE grant_uses (
    account    TEXT COLLATE "C" NOT NULL,
    grant_name TEXT COLLATE "C" NOT NULL,
    period     TEXT COLLATE "C" NOT NULL,
    covered    BIGINT NOT NULL CHECK (covered >= 0), -- in the unit of the quota's meter
    PRIMARY KEY (account, grant_name, period)
);

-- Brokers listen, so that they need not ask all the time. The payload is the
-- subject; several changes of one transaction are one word.
-- +goose StatementBegin
CREATE FUNCTION versions_notify() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('budgetd_versions', NEW.subject);
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER versions_notify AFTER UPDATE ON versions
    FOR EACH ROW EXECUTE FUNCTION versions_notify();
