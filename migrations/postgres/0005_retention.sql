-- Months leave the ledger: a setting says for how long they are kept. What a
-- month charged stays in the usage rows, its closings and entries become tables
-- of their own.

-- +goose Up

-- The sum of the entries that have left with their months:
-- used = carried + the sum of the entries that are here.
ALTER TABLE usage ADD COLUMN carried bigint NOT NULL DEFAULT 0;

-- The first month that is kept; no row: every month. It never goes back.
CREATE TABLE kept_months (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    first_month date NOT NULL CHECK (first_month = date_trunc('month', first_month))
);

-- Months whose entries were carried: they count in usage.carried and no more by
-- themselves, whether their partitions are detached yet or not. The row is
-- written in the transaction that carries.
CREATE TABLE retired_months (
    month      date PRIMARY KEY,
    carried_at timestamptz NOT NULL DEFAULT now()
);

-- Keeps everybody from writing to a partition that was carried. BUD01 is the
-- ledger's own code for "too old".
-- +goose StatementBegin
CREATE FUNCTION ledger_refuse_retired() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger does not keep % any more', TG_TABLE_NAME USING ERRCODE = 'BUD01';
END
$$;
-- +goose StatementEnd

-- As before (0001_ledger.sql), and a month that is not kept any more is refused.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ledger_make_month(first_day date) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    parent    text;
    home      text;
    partition text;
    made      boolean := false;
BEGIN
    IF first_day <> date_trunc('month', first_day) THEN
        RAISE EXCEPTION 'first_day: % is not the first day of a month', first_day
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('budgetd.ledger_make_month'));
    IF EXISTS (SELECT FROM retired_months WHERE month = first_day) THEN
        -- Also while its partitions are here: nothing is routed to one that is
        -- being detached.
        RAISE EXCEPTION 'the ledger does not keep the month of % any more', first_day USING ERRCODE = 'BUD01';
    END IF;
    FOREACH parent IN ARRAY ARRAY['closings', 'entries'] LOOP
        SELECT n.nspname INTO STRICT home
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.oid = parent::regclass;
        partition := parent || to_char(first_day, '_YYYY_MM');
        CONTINUE WHEN EXISTS (
            SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
             WHERE i.inhparent = parent::regclass AND c.relname = partition);
        IF first_day < (SELECT first_month FROM kept_months) THEN
            RAISE EXCEPTION 'the ledger does not keep the month of % any more', first_day USING ERRCODE = 'BUD01';
        END IF;
        EXECUTE format('CREATE TABLE %I.%I (LIKE %I.%I INCLUDING ALL)', home, partition, home, parent);
        EXECUTE format('ALTER TABLE %I.%I ATTACH PARTITION %I.%I FOR VALUES FROM (%L) TO (%L)',
            home, parent, home, partition, first_day, (first_day + interval '1 month')::date);
        made := true;
    END LOOP;
    RETURN made;
END
$$;
-- +goose StatementEnd
