package reservation

import (
	"context"
	"slices"

	"github.com/budgetd/budgetd/ledger"
)

// announce lets the engine and the observer know of usage rows that changed
// without a reservation's end. What the engine does not take now it learns from
// an Auditor, which follows the ledger's changes.
func (b *Broker) announce(ctx context.Context, usage []ledger.Usage) {
	byAccount := map[string][]ledger.Usage{}
	for _, row := range usage {
		if row.Limit != "" { // the engine has no counters of totals
			byAccount[row.Account] = append(byAccount[row.Account], row)
		}
	}
	for account, rows := range byAccount {
		for part := range slices.Chunk(rows, ledger.MaxLines) {
			if b.tell(context.WithoutCancel(ctx), account, part) != nil {
				break
			}
		}
	}
	b.observe(usage)
}
