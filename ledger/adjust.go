package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// ErrTooOld says that a closing belongs to a month that the ledger does not
// keep any more. Nothing was written; the same call can never succeed.
var ErrTooOld = errors.New("older than what the ledger keeps")

// ErrReused says that the id of an adjustment or a correction stands for
// another one. Nothing was written.
var ErrReused = errors.New("the id was used for something else")

// ErrBelowZero says that an adjustment with a floor would leave its row below
// zero. Nothing was written.
var ErrBelowZero = errors.New("the row would be below zero")

// Bounds of an adjustment.
const (
	MaxReasonBytes = 1024
	MaxByBytes     = 128
	MaxReprice     = 1000 // repricings in one call
)

// Adjustment changes one usage row by hand, outside of any reservation: a
// goodwill credit, a bill that differs. It posts one entry.
type Adjustment struct {
	ID     [16]byte // made by the caller, not all zero; the same one again changes nothing
	Body   [16]byte // hash of what was asked for, not all zero: two adjustments of one id with the same body are the same
	Key    UsageKey
	Amount quota.Amount // signed, not 0, within -quota.MaxAmount and quota.MaxAmount
	At     time.Time    // its UTC month is the partition of its entry, its hour that of the reports
	By     string       // who, 1 to MaxByBytes bytes
	Reason string       // why, 1 to MaxReasonBytes bytes
	// Floor refuses the adjustment, with ErrBelowZero, where the row would be
	// below zero after it. It is not kept.
	Floor bool
}

// Repricing replaces what the meter "cost" of one closing was charged, on every
// usage row of that meter that it was charged on.
type Repricing struct {
	Account     string
	Reservation [16]byte
	Minted      time.Time
	Body        [16]byte // of the closing that was looked at: if another has won meanwhile, nothing is done
	Rank        Rank
	// Lines are the new absolute amounts of the usage rows to be changed; rows
	// that are not named stay as they are.
	Lines []Line
}

// Correction says on whose behalf closings are repriced.
type Correction struct {
	ID     [16]byte // of the whole correction
	At     time.Time
	By     string
	Reason string
}

// Repriced is what one Reprice posted.
type Repriced struct {
	Usage      []Usage       // the rows that changed, in the order of UsageKey.Compare
	Closings   int           // how many of them changed
	Difference quota.NanoUSD // of the totals (rows of no limit), over all of them
}

// Adjuster posts what no reservation's end posts. Everything is an entry more;
// nothing is ever edited.
type Adjuster interface {
	// Adjust posts an adjustment and returns its row afterwards. Posted is
	// false when an adjustment of this id and body had been posted before; the
	// row is that one's, as it is now. The errors are those of Append,
	// ErrReused, and with a floor ErrBelowZero.
	Adjust(ctx context.Context, a Adjustment) (usage Usage, posted bool, err error)

	// Adjustments returns at most limit (1 to MaxPage) adjustments of an account,
	// the newest first, of those before the instant and id of the one given;
	// nil starts at the newest.
	Adjustments(ctx context.Context, account string, before *Adjustment, limit int) ([]Adjustment, error)

	// Reprice posts, in one transaction, the difference between the new amounts
	// and what each closing is charged now, as further entries of its
	// reservation, which name the correction. Doing it again changes nothing. A
	// closing that is not there, or that another one
	// has replaced, is left alone. At most MaxReprice repricings, of one
	// reservation at most one. The errors are those of Append, and ErrReused
	// when the correction's id stands for another correction.
	Reprice(ctx context.Context, c Correction, repricings []Repricing) (Repriced, error)
}

// Validate returns an error that wraps [ErrInvalid] and names the field and
// its bound unless the adjustment is one that Adjust accepts.
func (a *Adjustment) Validate() error {
	problem := ""
	switch {
	case a.ID == ([16]byte{}):
		problem = "id: is all zero; make one"
	case a.Body == ([16]byte{}):
		problem = "body: is all zero; give the hash of the request"
	case a.Amount == 0:
		problem = "amount: is 0, which changes nothing"
	case a.Amount < -quota.MaxAmount || a.Amount > quota.MaxAmount:
		problem = fmt.Sprintf("amount: %d is not between %d and %d", a.Amount, -quota.MaxAmount, quota.MaxAmount)
	}
	return invalid(cmp.Or(problem, a.Key.problem(), instantProblem("at", a.At), authorProblem(a.By, a.Reason)))
}

func (k *UsageKey) problem() string {
	return cmp.Or(
		requiredText("account", k.Account),
		textProblem("limit", k.Limit),
		textProblem("scope", k.Scope),
		requiredText("period", k.Period),
		requiredText("meter", string(k.Meter)),
	)
}

func authorProblem(by, reason string) string {
	for _, field := range []struct {
		name, text string
		most       int
	}{{"by", by, MaxByBytes}, {"reason", reason, MaxReasonBytes}} {
		if p := requiredText(field.name, field.text); p != "" {
			return p
		}
		if len(field.text) > field.most {
			return fmt.Sprintf("%s: has %d bytes, at most %d are accepted", field.name, len(field.text), field.most)
		}
	}
	return ""
}

// ValidateAdjustments returns an error that wraps [ErrInvalid] unless the
// arguments of Adjustments are in their bounds.
func ValidateAdjustments(account string, before *Adjustment, limit int) error {
	problem := cmp.Or(requiredText("account", account), pageProblem(limit))
	if problem == "" && before != nil {
		problem = instantProblem("before.at", before.At)
	}
	return invalid(problem)
}

// ValidateReprice returns an error that wraps [ErrInvalid] and names the field
// unless the arguments of Reprice are in their bounds: lines are of the meter
// cost, at most MaxLines a closing and one a row, with amounts from 0 to
// quota.MaxAmount.
func ValidateReprice(c Correction, repricings []Repricing) error {
	problem := ""
	switch {
	case c.ID == ([16]byte{}):
		problem = "id: is all zero; make one"
	case len(repricings) > MaxReprice:
		problem = fmt.Sprintf("repricings: %d in one call, at most %d are accepted; post them in parts", len(repricings), MaxReprice)
	}
	problem = cmp.Or(problem, instantProblem("at", c.At), authorProblem(c.By, c.Reason))
	type key struct {
		account     string
		reservation [16]byte
		month       time.Time
	}
	seen := make(map[key]int, len(repricings))
	for i := range repricings {
		if problem != "" {
			break
		}
		r := &repricings[i]
		if p := r.problem(); p != "" {
			problem = fmt.Sprintf("repricings[%d].%s", i, p)
			break
		}
		k := key{r.Account, r.Reservation, MonthOf(r.Minted)}
		if first, twice := seen[k]; twice {
			problem = fmt.Sprintf("repricings[%d]: is of the reservation of repricings[%d]; post them one after the other", i, first)
		}
		seen[k] = i
	}
	return invalid(problem)
}

func (r *Repricing) problem() string {
	// What is named is found like a closing, whose bounds hold here too.
	closing := Closing{
		Account: r.Account, Reservation: r.Reservation, Minted: r.Minted, ClosedAt: r.Minted,
		Rank: r.Rank, Body: r.Body, Lines: r.Lines,
	}
	if p := closing.problem(); p != "" {
		return p
	}
	for i := range r.Lines {
		if r.Lines[i].Meter != quota.MeterCost {
			return fmt.Sprintf("lines[%d].meter: %s is not %q, the only meter that has a price", i, quoteShort(string(r.Lines[i].Meter)), quota.MeterCost)
		}
	}
	return ""
}

func invalid(problem string) error {
	if problem == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrInvalid, problem)
}
