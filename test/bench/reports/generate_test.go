package reports

import (
	"context"
	"database/sql"
	_ "embed" // the statements are files
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/quota"
)

var (
	//go:embed sql/sample.sql
	makeSample string
	//go:embed sql/lines.sql
	makeLines string
)

// The span of the sample.
var (
	first = time.Date(2026, time.September, 1, 0, 0, 0, 0, time.UTC)
	end   = first.AddDate(0, 0, 90)
)

const accounts = 10

// lines are what each closing charges, as in sql/lines.sql.
var lines = []struct {
	limit string
	meter quota.Meter
}{
	{"spend", quota.MeterCost}, {"", quota.MeterCost}, {"", quota.MeterInputTokens}, {"", quota.MeterOutputTokens}, {"", quota.MeterTokens},
}

// steps of a generation: what Append would have written, in bulk.
var steps = []struct{ what, statement string }{
	{"closings", `INSERT INTO closings (month, account, reservation, rank, revision, late, degraded, minted, closed_at, body, price_version, labels, outcome)
		SELECT month, account, reservation, 2, 1, false, false, minted, minted + interval '3 s', reservation, '2026-09-01', labels::jsonb,
		       decode(repeat('00', 200), 'hex') FROM sample ORDER BY n`},
	{"entries", `INSERT INTO entries (month, account, reservation, sequence, usage_id, amount)
		SELECT month, account, reservation, sequence, usage_id, amount FROM sample_line ORDER BY n, sequence`},
	{"usage rows", `INSERT INTO usage (id, account, limit_id, scope, period, meter, used, version)
		SELECT r.id, r.account, r.limit_id, '', r.period, r.meter, sum(l.amount), 1
		  FROM sample_line l JOIN usage_row r ON r.id = l.usage_id GROUP BY r.id, r.account, r.limit_id, r.period, r.meter`},
	{"sets of labels", `INSERT INTO label_sets (id, labels) SELECT DISTINCT label_set, labels::jsonb FROM sample`},
	{"deltas", `INSERT INTO usage_deltas (hour, used, held, calls, labels, account, meter)
		SELECT date_trunc('hour', minted, 'UTC'), amount, held, 1, label_set, account, meter FROM sample_line WHERE limit_id = '' ORDER BY n, sequence`},
}

// generate fills a migrated ledger with so many closings. Each has deltas of
// its own, as if no two had been appended together.
func generate(tb testing.TB, dsn string, closings int) {
	tb.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	if _, err := migrations.Up(tb.Context(), db, migrations.Postgres); err != nil {
		tb.Fatal(err)
	}
	conn, err := pgx.Connect(tb.Context(), dsn)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(context.Background())
	run := func(what, statement string, arguments ...any) {
		tb.Helper()
		start := time.Now()
		if _, err := conn.Exec(tb.Context(), statement, arguments...); err != nil {
			tb.Fatalf("%s: %v", what, err)
		}
		tb.Logf("%-16s %s", what, time.Since(start).Round(time.Millisecond))
	}
	run("sample", makeSample, closings)
	run("usage ids", `CREATE UNLOGGED TABLE usage_row (id uuid, account text, limit_id text, meter text, period text, month date)`)
	for month := ledger.MonthOf(first); month.Before(end); month = month.AddDate(0, 1, 0) {
		run("month", `SELECT ledger_make_month($1)`, month)
		for account := range accounts {
			for _, line := range lines {
				key := ledger.UsageKey{Account: fmt.Sprint("account-", account), Limit: line.limit, Period: month.Format("m2006-01-02"), Meter: line.meter}
				if _, err := conn.Exec(tb.Context(), `INSERT INTO usage_row VALUES ($1, $2, $3, $4, $5, $6)`,
					pgtype.UUID{Bytes: key.ID(), Valid: true}, key.Account, key.Limit, string(key.Meter), key.Period, month); err != nil {
					tb.Fatal(err)
				}
			}
		}
	}
	run("lines", makeLines)
	for _, step := range steps {
		run(step.what, step.statement)
	}
	run("cleaning up", `DROP TABLE sample, usage_row CASCADE`)
}
