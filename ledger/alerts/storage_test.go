package alerts

import (
	"database/sql"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

// eachStore runs the test on every database that the product offers. open
// returns a store over a new pool of connections to the same fresh database at
// each call, as if of another node.
func eachStore(t *testing.T, test func(t *testing.T, open func() *Store)) {
	t.Run("sqlite", func(t *testing.T) { test(t, sqliteStores(t, 10*time.Second)) })
	t.Run("postgres", func(t *testing.T) {
		dsn := servers.MigratedDatabase(t)
		test(t, func() *Store { return Open(opened(t, "pgx", dsn), Config{RowLocks: true}) })
	})
}

func sqliteStores(t *testing.T, busy time.Duration) (open func() *Store) {
	t.Helper()
	dsn := "file:" + filepath.Join(t.TempDir(), "budgetd.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(" + strconv.FormatInt(busy.Milliseconds(), 10) + ")"
	if _, err := migrations.Up(t.Context(), opened(t, "sqlite", dsn), migrations.SQLite); err != nil {
		t.Fatal(err)
	}
	return func() *Store { return Open(opened(t, "sqlite", dsn), Config{}) }
}

func opened(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// clock is a time that passes when the test says so.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 11, 15, 9, 30, 0, 123_456_000, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func event(account string, percent int, at time.Time) Event {
	return Event{
		UsageKey:  ledger.UsageKey{Account: account, Limit: "spend.0a1b2c3d", Scope: "", Period: "m2026-11-01", Meter: quota.MeterCost},
		LimitName: "spend", Percent: percent, Used: 420_000_000_000, Amount: 500_000_000_000, RaisedAt: ledger.Instant(at),
	}
}

func raise(t *testing.T, s *Store, deliver bool, events ...Event) []bool {
	t.Helper()
	raised, err := s.Raise(t.Context(), events, deliver)
	if err != nil {
		t.Fatal(err)
	}
	return raised
}

func list(t *testing.T, s *Store, account string) []Alert {
	t.Helper()
	page, err := s.List(t.Context(), Query{Account: account, Limit: MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	return page.Alerts
}
