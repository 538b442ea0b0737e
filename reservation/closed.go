package reservation

import (
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// ClosedCall is what the ledger kept of a reservation's end.
type ClosedCall struct {
	// Held is what the reservation held of each meter, weights not applied, slots
	// left out. nil: a broker closed it that did not record it yet.
	Held quota.Amounts
	// Used is what it is charged in the totals of its account, corrections
	// included: 0 of a meter that was held and not charged.
	Used quota.Amounts
	// Released says that the caller gave it back unused.
	Released bool
}

// ReadClosing reads a closing as a ledger's Closing or Closings returns it.
func ReadClosing(c *ledger.Closing) (ClosedCall, error) {
	o, err := decodeOutcome(c.Outcome)
	if err != nil {
		return ClosedCall{}, err
	}
	closed := ClosedCall{Held: o.Asked, Used: make(quota.Amounts, len(c.Lines)), Released: o.Unused}
	for i := range c.Lines {
		if line := &c.Lines[i]; line.Limit == "" {
			if closed.Used[line.Meter], err = closed.Used[line.Meter].Add(line.Amount); err != nil {
				return ClosedCall{}, err
			}
		}
	}
	return closed, nil
}
