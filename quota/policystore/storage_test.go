package policystore

import (
	"database/sql"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// eachStore runs the test on every database that the product offers. open
// returns a new pool of connections to the same fresh database at each call,
// as if of another node.
func eachStore(t *testing.T, test func(t *testing.T, open func() *sql.DB)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "budgetd.db")
		open := opener(t, "sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
		if _, err := migrations.Up(t.Context(), open(), migrations.SQLite); err != nil {
			t.Fatal(err)
		}
		test(t, open)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, postgres(t))
	})
}

func postgres(t *testing.T) (open func() *sql.DB) {
	t.Helper()
	return opener(t, "pgx", servers.MigratedDatabase(t))
}

func opener(t testing.TB, driver, dsn string) func() *sql.DB {
	return func() *sql.DB {
		t.Helper()
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
}

// clock is a time that passes when the test says so.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock {
	return &clock{now: time.Date(2026, 11, 15, 9, 30, 0, 123_456_000, time.UTC)}
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
