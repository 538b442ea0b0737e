-- The ledger: what was really spent. Closings and entries are partitioned by
-- the UTC month in which the reservation was made, so that an old month can be
-- detached as a whole.
--
-- There is no DEFAULT partition on purpose. A row in it would keep its month
-- from ever getting a partition of its own, and attaching any partition would
-- lock and scan it. Instead ledger_make_month makes a month that is missing:
-- brokers call it ahead of time, and again when an Append meets a month that
-- nobody foresaw.

-- +goose Up

-- One row an account, limit, scope, period and meter: the running sum of its
-- entries. limit_id and scope are empty in the rows of an account's totals.
-- The id is the first 16 bytes of the SHA-256 of the five columns
-- (ledger.UsageKey.ID), so an entry can name its row before the row exists.
-- No index covers used, version and changed_at, and pages keep room: every
-- update is a heap-only one.
CREATE TABLE usage (
    id         uuid PRIMARY KEY,
    account    text COLLATE "C" NOT NULL,
    limit_id   text COLLATE "C" NOT NULL,
    scope      text COLLATE "C" NOT NULL,
    period     text COLLATE "C" NOT NULL,
    meter      text COLLATE "C" NOT NULL,
    used       bigint NOT NULL,                       -- in the meter's unit
    version    bigint NOT NULL CHECK (version >= 0),  -- + 1 a transaction that changes used
    changed_at timestamptz NOT NULL DEFAULT now(),    -- start of the transaction that changed the row last
    UNIQUE (account, period, limit_id, scope, meter)
) WITH (fillfactor = 60);

-- One row a reservation: the closing of the highest rank.
CREATE TABLE closings (
    month         date NOT NULL,            -- first day of the UTC month of minted
    account       text COLLATE "C" NOT NULL,
    reservation   uuid NOT NULL,            -- starts with the mint instant: an account's rows are in order of time
    rank          smallint NOT NULL CHECK (rank IN (1, 2)),   -- 1 expired, 2 refunded
    revision      smallint NOT NULL CHECK (revision >= 1),    -- how many closings this row has held
    late          boolean NOT NULL,         -- the Refund came after the lease had ended
    degraded      boolean NOT NULL,         -- granted while the engine did not answer
    minted        timestamptz NOT NULL CHECK (month = date_trunc('month', minted AT TIME ZONE 'UTC')),
    closed_at     timestamptz NOT NULL,
    posted_at     timestamptz NOT NULL DEFAULT now(), -- start of the transaction that wrote this revision
    body          uuid NOT NULL,            -- hash of the closing body
    price_version text NOT NULL,
    labels        jsonb NOT NULL,           -- object of strings
    outcome       bytea NOT NULL CHECK (octet_length(outcome) <= 16384),
    PRIMARY KEY (account, reservation, month)
) PARTITION BY RANGE (month);

-- What was posted since an instant, for auditors. A BRIN index costs almost
-- nothing to keep, and rows arrive in the order of posted_at.
CREATE INDEX closings_by_posting ON closings USING brin (posted_at) WITH (pages_per_range = 32);

-- One immutable row a line: the difference that a closing made to one usage
-- row. Each line of a closing has an entry when it is first posted, with
-- amount 0 too, so the entries of a reservation also tell its lines.
CREATE TABLE entries (
    month       date NOT NULL,              -- as in closings
    account     text COLLATE "C" NOT NULL,
    reservation uuid NOT NULL,
    sequence    integer NOT NULL CHECK (sequence >= 1), -- from 1, without gaps, in each reservation
    usage_id    uuid NOT NULL,
    amount      bigint NOT NULL CHECK (amount BETWEEN -9007199254740991 AND 9007199254740991),
    posted_at   timestamptz NOT NULL DEFAULT now(), -- start of the transaction
    PRIMARY KEY (account, reservation, sequence, month)
) PARTITION BY RANGE (month);

-- Makes the partitions of one month, given by its first day; says whether
-- anything had to be made. Nodes that call it at once wait for each other.
-- ATTACH PARTITION does not block Appends under way, as CREATE TABLE ...
-- PARTITION OF would.
-- +goose StatementBegin
CREATE FUNCTION ledger_make_month(first_day date) RETURNS boolean
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
    FOREACH parent IN ARRAY ARRAY['closings', 'entries'] LOOP
        SELECT n.nspname INTO STRICT home
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.oid = parent::regclass;
        partition := parent || to_char(first_day, '_YYYY_MM');
        CONTINUE WHEN EXISTS (
            SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
             WHERE i.inhparent = parent::regclass AND c.relname = partition);
        EXECUTE format('CREATE TABLE %I.%I (LIKE %I.%I INCLUDING ALL)', home, partition, home, parent);
        EXECUTE format('ALTER TABLE %I.%I ATTACH PARTITION %I.%I FOR VALUES FROM (%L) TO (%L)',
            home, parent, home, partition, first_day, (first_day + interval '1 month')::date);
        made := true;
    END LOOP;
    RETURN made;
END
$$;
-- +goose StatementEnd
