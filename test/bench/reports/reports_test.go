package reports

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/pgledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/test/servers"
)

var (
	closings = flag.Int("closings", 20_000, "how many closings of five lines the benchmarks generate, 1 to 100,000,000")
	plans    = flag.Bool("plans", false, "print the plan of each report")
)

func TestMain(m *testing.M) { servers.Main(m) }

// questions are typical reports. What they ask for is a third of the sample at
// most, as most reports are of the running month.
var questions = []struct {
	name  string
	query ledger.ReportQuery
}{
	{"month by model, all accounts", ledger.ReportQuery{
		From: month, To: month.AddDate(0, 1, 0), Grain: ledger.GrainMonth, GroupBy: []string{"model"}}},
	{"days of a month by route, one account", ledger.ReportQuery{
		Account: "account-3", From: month, To: month.AddDate(0, 1, 0), Grain: ledger.GrainDay, GroupBy: []string{"route"}}},
	{"hours of a day by model, all accounts", ledger.ReportQuery{
		From: month.AddDate(0, 0, 9), To: month.AddDate(0, 0, 10), Grain: ledger.GrainHour, GroupBy: []string{"model"}}},
	{"90 days in one by team, all accounts", ledger.ReportQuery{
		From: first.Add(7 * time.Hour), To: end.Add(-5 * time.Hour), Grain: ledger.GrainTotal, GroupBy: []string{"team"}}},
	{"month of one key by route", ledger.ReportQuery{
		Account: "account-3", From: month, To: month.AddDate(0, 1, 0), Grain: ledger.GrainMonth, GroupBy: []string{"route"},
		Labels: map[string]string{"key": "key-17-1"}}},
	{"held against used of a month by route", ledger.ReportQuery{
		From: month, To: month.AddDate(0, 1, 0), Grain: ledger.GrainTotal, GroupBy: []string{"route"}, Meters: []quota.Meter{quota.MeterTokens}}},
}

// month is the second of the sample's.
var month = ledger.MonthOf(first).AddDate(0, 1, 0)

// session is a ledger of its own on one connection, whose server says beside
// its answers what it did.
type session struct {
	*pgledger.Ledger
	mu    sync.Mutex
	plans strings.Builder
	spent time.Duration // processor time of the server
}

// take returns what was said since the last take.
func (s *session) take() (plans string, spent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	plans, spent = s.plans.String(), s.spent
	s.plans.Reset()
	s.spent = 0
	return plans, spent
}

// rusage is how a server with log_executor_stats says what a statement took.
var rusage = regexp.MustCompile(`([0-9.]+) s user, ([0-9.]+) s system, [0-9.]+ s elapsed`)

func (s *session) hear(_ *pgconn.PgConn, notice *pgconn.Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.Contains(notice.Message, "plan:") {
		s.plans.WriteString(notice.Message + "\n")
	}
	if spent := rusage.FindStringSubmatch(notice.Detail); spent != nil {
		for _, text := range spent[1:] {
			if seconds, err := strconv.ParseFloat(text, 64); err == nil {
				s.spent += time.Duration(seconds * float64(time.Second))
			}
		}
	}
}

// listen opens a session with these settings.
func listen(tb testing.TB, dsn, settings string) (*session, *pgxpool.Pool) {
	tb.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	s := &session{}
	config.MaxConns = 1
	config.ConnConfig.OnNotice = s.hear
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, settings)
		return err
	}
	pool, err := pgxpool.NewWithConfig(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	if s.Ledger, err = pgledger.New(tb.Context(), pgledger.Pools{Main: pool}, end); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s, pool
}

const (
	ordinary = `SELECT 1`
	// One process does it all, so that its processor time is the whole cost,
	// whatever else the machine does.
	counted   = `SET max_parallel_workers_per_gather = 0; SET log_executor_stats = on; SET client_min_messages = log`
	explained = `LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on;
		SET auto_explain.log_buffers = on; SET client_min_messages = log`
)

// open generates a ledger and rolls it up.
func open(tb testing.TB, count int) (dsn string) {
	tb.Helper()
	server := servers.NewPostgres(tb, "shared_buffers=1GB", "max_wal_size=8GB", "maintenance_work_mem=256MB")
	generate(tb, server.DSN(), count)
	roller, pool := listen(tb, server.DSN(), counted)
	start, rolled := time.Now(), 0
	for more := true; more; {
		done, err := roller.Maintain(tb.Context(), end, 0)
		if err != nil {
			tb.Fatal(err)
		}
		rolled, more = rolled+done.Rolled, done.More
	}
	took := time.Since(start)
	_, spent := roller.take()
	tb.Logf("%-16s %s, %d deltas, %.0f a second, %.0f a second of processor time", "rolling up", took.Round(time.Millisecond),
		rolled, float64(rolled)/took.Seconds(), float64(rolled)/spent.Seconds())
	if _, err := pool.Exec(tb.Context(), `VACUUM (ANALYZE)`); err != nil {
		tb.Fatal(err)
	}
	rows, err := pool.Query(tb.Context(), `SELECT relname, reltuples::bigint, pg_size_pretty(pg_total_relation_size(oid)) FROM pg_class
		WHERE relname IN ('usage_hours', 'usage_days', 'usage_deltas', 'label_sets') OR relname ~ '^(closings|entries)_2' AND relkind = 'r' ORDER BY 1`)
	if err != nil {
		tb.Fatal(err)
	}
	var (
		name, size string
		tuples     int64
	)
	if _, err := pgx.ForEachRow(rows, []any{&name, &tuples, &size}, func() error {
		tb.Logf("%-18s %9d rows %s", name, tuples, size)
		return nil
	}); err != nil {
		tb.Fatal(err)
	}
	return server.DSN()
}

// all reads every page.
func all(tb testing.TB, l ledger.Reader, q ledger.ReportQuery) (rows []ledger.ReportRow) {
	tb.Helper()
	q.Limit = ledger.MaxPage
	for {
		page, err := l.Report(tb.Context(), q)
		if err != nil {
			tb.Fatal(err)
		}
		rows = append(rows, page.Rows...)
		if page.Next == "" {
			return rows
		}
		q.After = page.Next
	}
}

// BenchmarkReports asks each question of a ledger of -closings closings.
func BenchmarkReports(b *testing.B) {
	if *closings < 1 || *closings > 100_000_000 {
		b.Fatalf("-closings: %d is not between 1 and 100,000,000", *closings)
	}
	dsn := open(b, *closings)
	l, _ := listen(b, dsn, ordinary)
	meter, raw := listen(b, dsn, counted)
	planner, _ := listen(b, dsn, explained)
	measure := func(name string, ask func(testing.TB, *session) int) {
		b.Run(name, func(b *testing.B) {
			rows := 0
			for b.Loop() {
				rows = ask(b, l)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms")
			b.ReportMetric(float64(rows), "rows")
			meter.take()
			ask(b, meter)
			_, spent := meter.take()
			b.ReportMetric(float64(spent.Microseconds())/1000, "cpu-ms")
		})
	}
	for _, question := range questions {
		measure(question.name, func(tb testing.TB, s *session) int { return len(all(tb, s, question.query)) })
		if *plans {
			planner.take()
			all(b, planner, question.query)
			plan, _ := planner.take()
			fmt.Printf("%s\n%s\n", question.name, plan)
		}
	}
	measure("every day, set and meter of an account, in pages", func(tb testing.TB, s *session) int {
		return len(all(tb, s, ledger.ReportQuery{
			Account: "account-3", From: first, To: end, Grain: ledger.GrainDay, GroupBy: []string{"key", "model", "route", "team"},
		}))
	})
	b.Run("month by model from entries, for comparison", func(b *testing.B) {
		meter.take()
		for b.Loop() {
			if _, err := raw.Exec(b.Context(), sumOfEntries, month); err != nil {
				b.Fatal(err)
			}
		}
		_, spent := meter.take()
		b.ReportMetric(float64(spent.Microseconds())/1000/float64(b.N), "cpu-ms")
	})
}

// sumOfEntries is the first question asked of the entries.
const sumOfEntries = `SELECT c.labels ->> 'model' AS model, u.meter, sum(e.amount), count(*)
  FROM entries e JOIN usage u ON u.id = e.usage_id AND u.limit_id = ''
  JOIN closings c ON c.month = e.month AND c.account = e.account AND c.reservation = e.reservation
 WHERE e.month = $1::date GROUP BY 1, 2 ORDER BY 1, 2`

// TestSampleIsALedger checks at a small size that what is measured is true: the
// books add up, and reports say what the entries do.
func TestSampleIsALedger(t *testing.T) {
	const count = 3000
	l, pool := listen(t, open(t, count), ordinary)
	for account := range accounts {
		if found, err := l.CheckSums(t.Context(), fmt.Sprint("account-", account)); err != nil || len(found) > 0 {
			t.Errorf("the books of account %d: %+v, %v", account, found, err)
		}
	}
	calls := int64(0)
	for _, row := range all(t, l, ledger.ReportQuery{From: first, To: end, Grain: ledger.GrainTotal, Meters: []quota.Meter{"tokens"}}) {
		calls += row.Calls
	}
	if calls != count {
		t.Errorf("%d calls, want %d", calls, count)
	}
	type line struct {
		Model, Meter string
		Used, Calls  int64
	}
	rows, err := pool.Query(t.Context(), sumOfEntries, month)
	if err != nil {
		t.Fatal(err)
	}
	want, err := pgx.CollectRows(rows, pgx.RowToStructByPos[line])
	if err != nil {
		t.Fatal(err)
	}
	got := all(t, l, questions[0].query)
	if len(got) != len(want) || len(got) != 20*4 {
		t.Fatalf("%d rows, want %d: 20 models of 4 meters", len(got), len(want))
	}
	for i, w := range want {
		if g := got[i]; g.Group[0] != w.Model || string(g.Meter) != w.Meter || int64(g.Used) != w.Used || g.Calls != w.Calls {
			t.Errorf("row %d is %+v, want %+v", i, g, w)
		}
	}
}
