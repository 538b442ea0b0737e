package migrations_test

import (
	"database/sql"
	"os"
	"slices"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/budgetd/budgetd/migrations"
)

// TestReportsOfWhatWasPostedBefore migrates a ledger with closings in it from
// before there were reports.
func TestReportsOfWhatWasPostedBefore(t *testing.T) {
	// Two totals and a limit, one reservation with two entries on a row, one
	// closing in the next hour, and labels that need escapes.
	statements := map[migrations.Dialect][]string{
		migrations.Postgres: {
			`SELECT ledger_make_month('2026-11-01')`,
			`INSERT INTO usage (id, account, limit_id, scope, period, meter, used, version)
			 SELECT md5(v.id)::uuid, 'acme', v.limit_id, '', 'm2026-11-01', v.meter, v.used, 1
			   FROM (VALUES ('c', '', 'cost', 12), ('t', '', 'tokens', 7), ('l', 'spend', 'cost', 99)) AS v (id, limit_id, meter, used)`,
			`INSERT INTO closings (month, account, reservation, rank, revision, late, degraded, minted, closed_at, body, price_version, labels, outcome)
			 SELECT '2026-11-01', 'acme', md5(v.id)::uuid, 2, 1, false, false, v.minted::timestamptz, v.minted::timestamptz, md5('')::uuid, '', v.labels::jsonb, ''
			   FROM (VALUES ('1', '2026-11-15 12:59:59.999999+00', '{"model":"a","\"ä\"":"<\n>"}'), ('2', '2026-11-15 13:00+00', '{}')) AS v (id, minted, labels)`,
			`INSERT INTO entries (month, account, reservation, sequence, usage_id, amount)
			 SELECT '2026-11-01', 'acme', md5(v.reservation)::uuid, v.sequence, md5(v.id)::uuid, v.amount
			   FROM (VALUES ('1', 1, 'c', 10), ('1', 2, 'l', 99), ('1', 3, 'c', -3), ('2', 1, 'c', 5), ('2', 2, 't', 7)) AS v (reservation, sequence, id, amount)`,
		},
		migrations.SQLite: {
			`INSERT INTO usage (id, account, limit_id, scope, period, meter, used, version, changed_at_us)
			 SELECT CAST(printf('%016d', v.column1) AS BLOB), 'acme', v.column2, '', 'm2026-11-01', v.column3, v.column4, 1, 0
			   FROM (VALUES (1, '', 'cost', 12), (2, '', 'tokens', 7), (3, 'spend', 'cost', 99)) v`,
			`INSERT INTO closings (account, reservation, month, rank, revision, late, degraded, minted_us, closed_at_us, posted_at_us, body, price_version, labels, outcome)
			 SELECT 'acme', CAST(printf('%016d', v.column1) AS BLOB), 202611, 2, 1, 0, 0, unixepoch(v.column2) * 1000000 + 999999, 0, 0, zeroblob(16), '', v.column3, x''
			   FROM (VALUES (1, '2026-11-15 12:59:59', '{"\"ä\"":"\u003c\n\u003e","model":"a"}'), (2, '2026-11-15 13:00:00', '{}')) v`,
			`INSERT INTO entries (account, reservation, month, sequence, usage_id, amount, posted_at_us)
			 SELECT 'acme', CAST(printf('%016d', v.column1) AS BLOB), 202611, v.column2, CAST(printf('%016d', v.column3) AS BLOB), v.column4, 0
			   FROM (VALUES (1, 1, 1, 10), (1, 2, 3, 99), (1, 3, 1, -3), (2, 1, 1, 5), (2, 2, 2, 7)) v`,
		},
	}
	sums := map[migrations.Dialect]string{
		migrations.Postgres: `SELECT line FROM (SELECT to_char(d.hour AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24') || ' ' || d.meter || ' ' || d.used || ' ' || d.held || ' ' || d.calls
			|| ' ' || coalesce(s.labels ->> 'model', '-') || ' ' || coalesce(s.labels ->> '"ä"', '-') AS line
			FROM usage_deltas d JOIN label_sets s ON s.id = d.labels) AS sums ORDER BY line COLLATE "C"`,
		migrations.SQLite: `SELECT strftime('%Y-%m-%d %H', h.hour * 3600, 'unixepoch') || ' ' || h.meter || ' ' || h.used || ' ' || h.held || ' ' || h.calls
			|| ' ' || coalesce((SELECT value FROM label_values v WHERE v.labels = h.labels AND name = 'model'), '-')
			|| ' ' || coalesce((SELECT value FROM label_values v WHERE v.labels = h.labels AND name = '"ä"'), '-') AS line
			FROM usage_hours h ORDER BY line`,
	}
	want := []string{"2026-11-15 12 cost 7 0 1 a <\n>", "2026-11-15 13 cost 5 0 1 - -", "2026-11-15 13 tokens 7 0 1 - -"}
	gooseNames := map[migrations.Dialect]goose.Dialect{migrations.Postgres: goose.DialectPostgres, migrations.SQLite: goose.DialectSQLite3}
	eachDialect(t, func(t *testing.T, dialect migrations.Dialect, open func() *sql.DB) {
		ctx, db := t.Context(), open()
		before, err := goose.NewProvider(gooseNames[dialect], db, os.DirFS(string(dialect)), goose.WithTableName("budgetd_schema"), goose.WithDisableGlobalRegistry(true))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := before.UpTo(ctx, 2); err != nil {
			t.Fatal(err)
		}
		for _, statement := range statements[dialect] {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				t.Fatalf("%v in %s", err, statement)
			}
		}
		if _, err := migrations.Up(ctx, db, dialect); err != nil {
			t.Fatal(err)
		}
		if got := lines(t, db, sums[dialect]); !slices.Equal(got, want) {
			t.Errorf("sums %q, want %q", got, want)
		}
		if dialect == migrations.SQLite {
			days := lines(t, db, `SELECT date(day * 86400, 'unixepoch') || ' ' || meter || ' ' || sum(used) || ' ' || sum(calls) FROM usage_days GROUP BY day, meter`)
			if want := []string{"2026-11-15 cost 12 2", "2026-11-15 tokens 7 1"}; !slices.Equal(days, want) {
				t.Errorf("days %q, want %q", days, want)
			}
		}
	})
}

func lines(t *testing.T, db *sql.DB, query string) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
