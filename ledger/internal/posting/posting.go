// Package posting computes what an Append writes: the entries of each closing,
// the difference for each usage row, and what reports gain. It is pure, and the engines share it,
// so that they can't disagree about money.
package posting

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// Charge is what a reservation was charged on one usage row so far: the sum of
// its entries there.
type Charge struct {
	Row    ledger.RowID
	Key    ledger.UsageKey
	Amount quota.Amount
}

// Reservation is what the entries of one reservation say so far. The zero
// value is a reservation without entries.
type Reservation struct {
	Charges  []Charge // one a row, in no order
	Sequence int      // of the last entry; 0 for none
}

// Entry is one immutable line to be written.
type Entry struct {
	Sequence int
	Row      ledger.RowID
	Amount   quota.Amount // the difference; 0 only for a line that is new and charges nothing
}

// Post charges what the closing states, in place of what the reservation was
// charged before. It calls write for each entry, in order, and adds the
// differences to rows, and those of totals to deltas. A row that was charged
// before and that the closing does not name is given back.
//
// In reports a reservation counts as one call of each meter that it has a total
// of, with what it held: once, with the first closing that has that total, and
// not again when a closing of a higher rank replaces it.
//
// The error wraps quota.ErrOverflow unless the labels can't be encoded; what
// was written so far must be dropped.
func (r *Reservation) Post(closing *ledger.Closing, rows *Rows, deltas *Deltas, write func(Entry)) error {
	hour, err := deltas.In(closing.Account, closing.Minted, closing.Labels)
	if err != nil {
		return err
	}
	p := post{rows: rows, hour: hour, write: write}
	before := len(r.Charges)
	for i := range closing.Lines {
		if line := &closing.Lines[i]; line.Limit == "" && !hasTotal(r.Charges[:before], line.Meter) {
			p.count(closing.Lines[:i], line)
		}
	}
	named := make([]bool, before)
	r.Charges = slices.Grow(r.Charges, len(closing.Lines))
	for i := range closing.Lines {
		line := &closing.Lines[i]
		key := line.Key(closing.Account)
		id := key.ID()
		at := -1
		for j := range before {
			if r.Charges[j].Row == id {
				at = j
				break
			}
		}
		if at < 0 {
			r.Charges = append(r.Charges, Charge{Row: id, Key: key, Amount: line.Amount})
			if err := r.enter(id, key, line.Amount, &p); err != nil {
				return err
			}
			continue
		}
		named[at] = true
		if err := r.change(at, line.Amount, &p); err != nil {
			return err
		}
	}
	for j := range before {
		if !named[j] {
			if err := r.change(j, 0, &p); err != nil {
				return err
			}
		}
	}
	return nil
}

// post is where one closing posts to.
type post struct {
	rows  *Rows
	hour  *Hour
	write func(Entry)
}

// count counts a total whose meter the reservation had no total of before. Of
// several totals of one meter each adds what it held, and the first is the
// call.
func (p *post) count(earlier []ledger.Line, line *ledger.Line) {
	for i := range earlier {
		if earlier[i].Limit == "" && earlier[i].Meter == line.Meter {
			p.hour.hold(line.Meter, line.Held)
			return
		}
	}
	p.hour.count(line.Meter, line.Held)
}

func hasTotal(charges []Charge, meter quota.Meter) bool {
	for i := range charges {
		if key := &charges[i].Key; key.Limit == "" && key.Meter == meter {
			return true
		}
	}
	return false
}

func (r *Reservation) change(at int, to quota.Amount, p *post) error {
	charge := &r.Charges[at]
	difference, err := to.Sub(charge.Amount)
	if err != nil {
		return overflow(charge.Key, err)
	}
	if difference == 0 {
		p.rows.Touch(charge.Row, charge.Key)
		return nil
	}
	charge.Amount = to
	return r.enter(charge.Row, charge.Key, difference, p)
}

func (r *Reservation) enter(id ledger.RowID, key ledger.UsageKey, amount quota.Amount, p *post) error {
	if err := p.rows.add(id, key, amount); err != nil {
		return err
	}
	if err := p.hour.Post(key, amount); err != nil {
		return err
	}
	r.Sequence++
	p.write(Entry{Sequence: r.Sequence, Row: id, Amount: amount})
	return nil
}

// Row is the difference for one usage row, summed over a whole Append.
type Row struct {
	ID         ledger.RowID
	Key        ledger.UsageKey
	Difference quota.Amount

	// What the row holds afterwards; set by the engine.
	Used    quota.Amount
	Version int64
}

// Rows sums differences by usage row. The zero value is ready to use.
type Rows struct {
	index map[ledger.RowID]int
	rows  []Row
}

// Touch makes the row one of those that the engine reads, with difference 0.
func (r *Rows) Touch(id ledger.RowID, key ledger.UsageKey) *Row {
	at, known := r.index[id]
	if !known {
		if r.index == nil {
			r.index = make(map[ledger.RowID]int)
		}
		at = len(r.rows)
		r.index[id] = at
		r.rows = append(r.rows, Row{ID: id, Key: key})
	}
	return &r.rows[at]
}

func (r *Rows) add(id ledger.RowID, key ledger.UsageKey, amount quota.Amount) error {
	row := r.Touch(id, key)
	sum, err := row.Difference.Add(amount)
	if err != nil {
		return overflow(key, err)
	}
	row.Difference = sum
	return nil
}

// InOrder returns the rows in the order of their ids, in which every engine
// locks them. The pointers stand until the next Touch.
func (r *Rows) InOrder() []*Row {
	ordered := make([]*Row, len(r.rows))
	for i := range r.rows {
		ordered[i] = &r.rows[i]
	}
	slices.SortFunc(ordered, func(a, b *Row) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return ordered
}

// Find returns a row, or nil.
func (r *Rows) Find(id ledger.RowID) *Row {
	if at, known := r.index[id]; known {
		return &r.rows[at]
	}
	return nil
}

// Usage returns the state of the reservation's usage rows, in the order of
// their keys. Every row must have been touched and read.
func (r *Reservation) Usage(rows *Rows) []ledger.Usage {
	if len(r.Charges) == 0 {
		return nil
	}
	usage := make([]ledger.Usage, 0, len(r.Charges))
	for i := range r.Charges {
		row := rows.Find(r.Charges[i].Row)
		usage = append(usage, ledger.Usage{UsageKey: row.Key, Used: row.Used, Version: row.Version})
	}
	slices.SortFunc(usage, func(a, b ledger.Usage) int { return a.Compare(b.UsageKey) })
	return usage
}

// Lines returns what the reservation is charged now, in the order of the keys:
// a line for every row that it was ever charged on.
func (r *Reservation) Lines() []ledger.Line {
	if len(r.Charges) == 0 {
		return nil
	}
	ordered := slices.Clone(r.Charges)
	slices.SortFunc(ordered, func(a, b Charge) int { return a.Key.Compare(b.Key) })
	lines := make([]ledger.Line, len(ordered))
	for i, charge := range ordered {
		lines[i] = ledger.Line{
			Limit: charge.Key.Limit, Scope: charge.Key.Scope, Period: charge.Key.Period, Meter: charge.Key.Meter,
			Amount: charge.Amount,
		}
	}
	return lines
}

func overflow(key ledger.UsageKey, err error) error {
	return fmt.Errorf("usage of account %q, limit %q, scope %q, period %q, meter %q: %w",
		key.Account, key.Limit, key.Scope, key.Period, key.Meter, err)
}

// Overflow returns the error for a usage row whose sum left 64 bits.
func Overflow(row *Row) error { return overflow(row.Key, quota.ErrOverflow) }
