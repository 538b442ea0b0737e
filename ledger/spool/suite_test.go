package spool_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/ledgertest"
	"github.com/budgetd/budgetd/ledger/spool"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
	"github.com/budgetd/budgetd/quota"
)

// A spool in front of a ledger that is there is that ledger.
func TestLedger(t *testing.T) {
	ledgertest.Run(t, func(tb testing.TB) ledgertest.Database {
		path := filepath.Join(tb.TempDir(), "ledger.db")
		openBooks(tb, path).Close()
		return database(path)
	})
}

// database is a ledger file of one test.
type database string

func (d database) Open(tb testing.TB) ledger.Ledger {
	tb.Helper()
	next := openBooks(tb, string(d))
	s, err := spool.Open(tb.Context(), spool.Config{Next: next, Path: filepath.Join(tb.TempDir(), "spool.db"), Patience: spool.MaxPatience})
	if err != nil {
		tb.Fatal(err)
	}
	return both{s, next}
}

type both struct {
	*spool.Spool
	next ledger.Ledger
}

func (b both) Close() error { return errors.Join(b.Spool.Close(), b.next.Close()) }

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
	db, err := sqliteledger.OpenFile(string(d), 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	result, err := db.Exec(statement, arguments...)
	if err != nil {
		tb.Fatal(err)
	}
	if changed, err := result.RowsAffected(); err != nil || changed != 1 {
		tb.Fatalf("%d rows changed, want 1: %v", changed, err)
	}
}
