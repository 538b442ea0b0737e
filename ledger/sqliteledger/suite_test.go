package sqliteledger_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/ledgertest"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/quota"
)

func TestLedger(t *testing.T) {
	ledgertest.Run(t, func(tb testing.TB) ledgertest.Database { return fresh(tb) })
}

func TestGroupedLedger(t *testing.T) {
	ledgertest.Run(t, func(tb testing.TB) ledgertest.Database {
		return ledgertest.Grouped(fresh(tb), ledger.GroupConfig{})
	})
}

// database is a migrated file of one test.
type database struct{ path string }

func fresh(tb testing.TB) database {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "ledger with a %20 odd?name.db")
	migrate(tb, path)
	return database{path}
}

func migrate(tb testing.TB, path string) {
	tb.Helper()
	db, err := sqliteledger.OpenFile(path, time.Minute)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	if _, err := migrations.Up(context.Background(), db, migrations.SQLite); err != nil {
		tb.Fatal(err)
	}
}

func (d database) Open(tb testing.TB) ledger.Ledger {
	tb.Helper()
	return open(tb, d.path)
}

func open(tb testing.TB, path string) *sqliteledger.Ledger {
	tb.Helper()
	l, err := sqliteledger.Open(context.Background(), sqliteledger.Config{Path: path, BusyTimeout: time.Minute})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func (d database) Damage(tb testing.TB, key ledger.UsageKey, used quota.Amount) {
	tb.Helper()
	id := key.ID()
	d.changeOne(tb, `UPDATE usage SET used = ?2 WHERE id = ?1`, id[:], int64(used))
}

func (d database) Lose(tb testing.TB, key ledger.UsageKey) {
	tb.Helper()
	id := key.ID()
	d.changeOne(tb, `DELETE FROM usage WHERE id = ?1`, id[:])
}

func (d database) changeOne(tb testing.TB, statement string, arguments ...any) {
	tb.Helper()
	db, err := sqliteledger.OpenFile(d.path, time.Minute)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	result, err := db.Exec(statement, arguments...)
	if err != nil {
		tb.Fatal(err)
	}
	if changed, err := result.RowsAffected(); err != nil || changed != 1 {
		tb.Fatal(fmt.Errorf("%d rows changed, want 1: %w", changed, err))
	}
}
