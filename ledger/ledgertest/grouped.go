package ledgertest

import (
	"context"
	"errors"
	"testing"

	"github.com/budgetd/budgetd/ledger"
)

// Grouped returns the same database, whose engines append through a
// [ledger.GroupCommitter] each. The suite must hold with it as without.
func Grouped(database Database, config ledger.GroupConfig) Database {
	return groupedDatabase{database, config}
}

type groupedDatabase struct {
	Database
	config ledger.GroupConfig
}

func (d groupedDatabase) Open(tb testing.TB) ledger.Ledger {
	tb.Helper()
	engine := d.Database.Open(tb)
	group, err := ledger.NewGroupCommitter(engine, d.config)
	if err != nil {
		tb.Fatal(err)
	}
	return groupedLedger{engine, group}
}

type groupedLedger struct {
	ledger.Ledger
	group *ledger.GroupCommitter
}

func (l groupedLedger) Append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	return l.group.Append(ctx, closings)
}

func (l groupedLedger) Close() error {
	return errors.Join(l.group.Close(), l.Ledger.Close())
}
