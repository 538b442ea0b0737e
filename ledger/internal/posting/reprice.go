package posting

import (
	"fmt"
	"slices"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// Reprice charges the lines' amounts on their rows, in place of what the
// reservation was charged there; other rows stay as they are. It calls write
// for each entry, in order, adds the differences to rows, and those of totals
// to the hour, and says whether there were any, and what those of totals sum up
// to.
//
// The error wraps ledger.ErrInvalid when the reservation was never charged on a
// line's row, or quota.ErrOverflow; what was written so far must be dropped.
func (r *Reservation) Reprice(account string, lines []ledger.Line, rows *Rows, hour *Hour, write func(Entry)) (changed bool, totals quota.Amount, err error) {
	p := post{rows: rows, hour: hour, write: write}
	for i := range lines {
		k := lines[i].Key(account)
		id := k.ID()
		at := slices.IndexFunc(r.Charges, func(c Charge) bool { return c.Row == id })
		if at < 0 {
			return changed, 0, fmt.Errorf("%w: the closing was never charged on account %q, limit %q, scope %q, period %q, meter %q",
				ledger.ErrInvalid, k.Account, k.Limit, k.Scope, k.Period, k.Meter)
		}
		before, charged := r.Sequence, r.Charges[at].Amount
		if err := r.change(at, lines[i].Amount, &p); err != nil {
			return changed, 0, err
		}
		changed = changed || r.Sequence > before
		if k.Limit == "" {
			totals += lines[i].Amount - charged // few, and each far from 64 bits
		}
	}
	return changed, totals, nil
}

// Change adds an amount to a row outside of any reservation.
func (r *Rows) Change(key ledger.UsageKey, amount quota.Amount) (*Row, error) {
	id := key.ID()
	if err := r.add(id, key, amount); err != nil {
		return nil, err
	}
	return r.Find(id), nil
}

// Changed returns the state of the rows whose sum changed, in the order of
// their keys. The engine must have read them.
func (r *Rows) Changed() []ledger.Usage {
	var usage []ledger.Usage
	for i := range r.rows {
		if row := &r.rows[i]; row.Difference != 0 {
			usage = append(usage, ledger.Usage{UsageKey: row.Key, Used: row.Used, Version: row.Version})
		}
	}
	slices.SortFunc(usage, func(a, b ledger.Usage) int { return a.Compare(b.UsageKey) })
	return usage
}
