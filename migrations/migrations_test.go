package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// dialects make empty databases; opening one again reaches the same database.
var dialects = map[migrations.Dialect]func(*testing.T) (open func() *sql.DB){
	migrations.Postgres: func(t *testing.T) func() *sql.DB {
		dsn := servers.FreshDatabase(t)
		return func() *sql.DB { return openDB(t, "pgx", dsn) }
	},
	migrations.SQLite: func(t *testing.T) func() *sql.DB {
		path := filepath.Join(t.TempDir(), "new.db")
		dsn := "file:" + path + "?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)"
		return func() *sql.DB { return openDB(t, "sqlite", dsn) }
	},
}

func openDB(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func eachDialect(t *testing.T, run func(*testing.T, migrations.Dialect, func() *sql.DB)) {
	for dialect, fresh := range dialects {
		t.Run(string(dialect), func(t *testing.T) { run(t, dialect, fresh(t)) })
	}
}

// names returns the files of a dialect, in order.
func names(t *testing.T, dialect migrations.Dialect) []string {
	t.Helper()
	found, err := fs.Glob(os.DirFS(string(dialect)), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(found, "0001_ledger.sql") {
		t.Fatalf("the files of %s are %v", dialect, found)
	}
	return found
}

func namesOf(all []migrations.Migration) []string {
	var names []string
	for _, m := range all {
		names = append(names, m.Name)
	}
	return names
}

func TestBothDialectsHaveTheSameNumbers(t *testing.T) {
	if postgres, sqlite := names(t, migrations.Postgres), names(t, migrations.SQLite); !slices.Equal(postgres, sqlite) {
		t.Errorf("postgres has %v, sqlite has %v", postgres, sqlite)
	}
}

func TestUp(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect migrations.Dialect, open func() *sql.DB) {
		ctx, db, all := t.Context(), open(), names(t, dialect)
		pending, err := migrations.Pending(ctx, db, dialect)
		if err != nil || !slices.Equal(namesOf(pending), all) || !pending[0].Pending() || pending[0].Version != 1 {
			t.Errorf("pending in a new database: %+v, %v", pending, err)
		}
		applied, err := migrations.Up(ctx, db, dialect)
		if err != nil || !slices.Equal(namesOf(applied), all) {
			t.Fatalf("applied %+v, %v; want %v", applied, err, all)
		}
		for _, m := range applied {
			if m.Pending() {
				t.Errorf("%s was applied and is pending", m.Name)
			}
		}
		if again, err := migrations.Up(ctx, db, dialect); err != nil || len(again) != 0 {
			t.Errorf("up to date, applied %+v, %v", again, err)
		}
		status, err := migrations.Status(ctx, db, dialect)
		if err != nil || !slices.Equal(status, applied) {
			t.Errorf("status %+v, %v; want %+v", status, err, applied)
		}
		if pending, err := migrations.Pending(ctx, db, dialect); err != nil || len(pending) != 0 {
			t.Errorf("pending %+v, %v; want none", pending, err)
		}
	})
}

func TestNodesThatStartAtOnce(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect migrations.Dialect, open func() *sql.DB) {
		var mu sync.Mutex
		var all []string
		var wait sync.WaitGroup
		for range 6 {
			db := open()
			wait.Go(func() {
				applied, err := migrations.Up(t.Context(), db, dialect)
				if err != nil {
					t.Error(err)
				}
				pending, err := migrations.Pending(t.Context(), db, dialect)
				if err != nil || len(pending) != 0 {
					t.Errorf("pending after Up: %+v, %v", pending, err)
				}
				mu.Lock()
				all = append(all, namesOf(applied)...)
				mu.Unlock()
			})
		}
		wait.Wait()
		slices.Sort(all)
		if want := names(t, dialect); !slices.Equal(all, want) {
			t.Errorf("applied %v, want each of %v once", all, want)
		}
	})
}

func TestANewerSchemaIsRefused(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect migrations.Dialect, open func() *sql.DB) {
		ctx, db := t.Context(), open()
		if _, err := migrations.Up(ctx, db, dialect); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(ctx, `INSERT INTO budgetd_schema (version_id, is_applied) VALUES (9999, true)`); err != nil {
			t.Fatal(err)
		}
		_, upErr := migrations.Up(ctx, db, dialect)
		_, statusErr := migrations.Status(ctx, db, dialect)
		_, pendingErr := migrations.Pending(ctx, db, dialect)
		for call, err := range map[string]error{"Up": upErr, "Status": statusErr, "Pending": pendingErr} {
			if !errors.Is(err, migrations.ErrNewerSchema) || !strings.Contains(err.Error(), "9999") || !strings.Contains(err.Error(), "upgrade") {
				t.Errorf("%s: error %v, want ErrNewerSchema with the version and what to do", call, err)
			}
		}
	})
}

func TestErrors(t *testing.T) {
	db := dialects[migrations.SQLite](t)()
	if _, err := migrations.Up(t.Context(), db, "oracle"); err == nil || !strings.Contains(err.Error(), `"oracle"`) {
		t.Errorf("an unknown dialect: error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	eachDialect(t, func(t *testing.T, dialect migrations.Dialect, open func() *sql.DB) {
		if _, err := migrations.Up(ctx, open(), dialect); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: error %v", err)
		}
		// A table in the way: the file fails as a whole, with its name.
		blocked := dialects[dialect](t)()
		if _, err := blocked.Exec(`CREATE TABLE entries (x INTEGER)`); err != nil {
			t.Fatal(err)
		}
		if _, err := migrations.Up(t.Context(), blocked, dialect); err == nil || !strings.Contains(err.Error(), "0001_ledger.sql") {
			t.Errorf("a table in the way: error %v", err)
		}
		if _, err := blocked.Exec(`SELECT 1 FROM usage`); err == nil {
			t.Error("a file was applied in part")
		}
		if _, err := blocked.Exec(`DROP TABLE entries`); err != nil {
			t.Fatal(err)
		}
		if applied, err := migrations.Up(t.Context(), blocked, dialect); err != nil || len(applied) == 0 {
			t.Errorf("after it is gone: %+v, %v", applied, err)
		}
	})
}

func TestMakeMonth(t *testing.T) {
	open := dialects[migrations.Postgres](t)
	if _, err := migrations.Up(t.Context(), open(), migrations.Postgres); err != nil {
		t.Fatal(err)
	}
	makeMonth := func(db *sql.DB, day string) (made bool, err error) {
		err = db.QueryRowContext(t.Context(), `SELECT ledger_make_month($1::date)`, day).Scan(&made)
		return made, err
	}
	if _, err := makeMonth(open(), "2026-12-02"); err == nil || !strings.Contains(err.Error(), "first day of a month") {
		t.Errorf("the second of a month: error %v", err)
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for range 5 {
		db := open()
		wait.Go(func() {
			for _, day := range []string{"2026-12-01", "2027-01-01", "9999-12-01"} {
				made, err := makeMonth(db, day)
				if err != nil {
					t.Errorf("%s: %v", day, err)
				}
				if made {
					mu.Lock()
					total++
					mu.Unlock()
				}
			}
		})
	}
	wait.Wait()
	if total != 3 {
		t.Errorf("3 months were made %d times", total)
	}
}
