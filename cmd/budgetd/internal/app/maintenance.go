package app

import (
	"context"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

const (
	// maintainEvery is how often the ledger is maintained, on every node: what
	// reports have to read beside their sums is what came since.
	maintainEvery = 5 * time.Second
	// maintainWithin bounds one piece of it. A month that waits longer for its
	// readers to end is detached by a later one.
	maintainWithin = 30 * time.Second
)

// maintain keeps the ledger's tables in order until ctx ends.
func (a *App) maintain(ctx context.Context, b books) {
	ticker := time.NewTicker(maintainEvery)
	defer ticker.Stop()
	failing := false
	for {
		for more := true; more; {
			done, err := a.maintainOnce(ctx, b)
			if ctx.Err() != nil {
				return
			}
			for _, table := range done.Detached {
				a.log.Info("a table left the ledger after ledger_retention; archive or drop it", "table", table)
			}
			if failed := err != nil; failed != failing {
				failing = failed
				if failed {
					a.log.Error("the ledger's tables can't be maintained at the moment; it is tried again", "error", err)
				} else {
					a.log.Info("the ledger's tables are maintained again")
				}
			}
			more = err == nil && done.More
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (a *App) maintainOnce(ctx context.Context, b books) (ledger.Maintenance, error) {
	ctx, cancel := context.WithTimeout(ctx, maintainWithin)
	defer cancel()
	now, err := b.now(ctx)
	if err != nil {
		return ledger.Maintenance{}, err
	}
	return b.ledger.Maintain(ctx, now, a.config.LedgerRetention)
}
