package pgledger_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/ledgertest"
	"github.com/budgetd/budgetd/ledger/pgledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

func TestLedger(t *testing.T) {
	ledgertest.Run(t, func(tb testing.TB) ledgertest.Database { return fresh(tb) })
}

func TestGroupedLedger(t *testing.T) {
	ledgertest.Run(t, func(tb testing.TB) ledgertest.Database {
		return ledgertest.Grouped(fresh(tb), ledger.GroupConfig{})
	})
}

// database is a migrated database of one test.
type database struct{ dsn string }

func fresh(tb testing.TB) database {
	tb.Helper()
	return database{servers.MigratedDatabase(tb)}
}

// start is the month in which the tests' engines are opened.
var start = time.Date(2026, time.November, 15, 12, 0, 0, 0, time.UTC)

func (d database) pool(tb testing.TB, parameters string) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(d.dsn + parameters)
	if err != nil {
		tb.Fatal(err)
	}
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

func (d database) Open(tb testing.TB) ledger.Ledger {
	tb.Helper()
	return open(tb, d.pool(tb, ""))
}

func open(tb testing.TB, pool *pgxpool.Pool) *pgledger.Ledger {
	tb.Helper()
	l, err := pgledger.New(context.Background(), pgledger.Pools{Main: pool}, start)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func (d database) Damage(tb testing.TB, key ledger.UsageKey, used quota.Amount) {
	tb.Helper()
	d.changeOne(tb, `UPDATE usage SET used = $2 WHERE id = $1`, rowID(key), int64(used))
}

func (d database) Lose(tb testing.TB, key ledger.UsageKey) {
	tb.Helper()
	d.changeOne(tb, `DELETE FROM usage WHERE id = $1`, rowID(key))
}

func (d database) changeOne(tb testing.TB, statement string, arguments ...any) {
	tb.Helper()
	tag, err := d.pool(tb, "").Exec(context.Background(), statement, arguments...)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("%d rows changed, want 1", tag.RowsAffected())
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func rowID(key ledger.UsageKey) pgtype.UUID {
	return pgtype.UUID{Bytes: key.ID(), Valid: true}
}
