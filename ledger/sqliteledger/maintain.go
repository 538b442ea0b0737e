package sqliteledger

import (
	"context"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

// Maintain implements [ledger.Maintainer]. There is nothing to do: Append adds
// to the sums of reports itself, there are no partitions, and the file keeps
// everything whatever the retention.
func (l *Ledger) Maintain(_ context.Context, _ time.Time, retention time.Duration) (ledger.Maintenance, error) {
	if err := ledger.ValidateRetention(retention); err != nil {
		return ledger.Maintenance{}, err
	}
	if err := l.enter(); err != nil {
		return ledger.Maintenance{}, err
	}
	l.calls.Done()
	return ledger.Maintenance{}, nil
}
