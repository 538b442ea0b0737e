package pgledger

import (
	"context"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

// Maintain implements [ledger.Maintainer]. One call detaches one month at most;
// how long that takes depends on the readers that must end first, and a call
// that is cut off is gone on with by the next, of any node.
func (l *Ledger) Maintain(ctx context.Context, now time.Time, retention time.Duration) (ledger.Maintenance, error) {
	var done ledger.Maintenance
	if err := ledger.ValidateRetention(retention); err != nil {
		return done, err
	}
	if err := l.enter(); err != nil {
		return done, err
	}
	defer l.calls.Done()
	var err error
	if done.Made, err = l.makeMonths(ctx, now); err != nil {
		return done, wrap("make months", err)
	}
	if done.Detached, done.More, err = l.retire(ctx, now, retention); err != nil {
		return done, wrap("detach a month", err)
	}
	return done, nil
}
