package reservation

import (
	"errors"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/quota"
)

// outcome is what a closing said, kept by engine and ledger as opaque bytes so
// that a repeated Refund gets the first answer.
type outcome struct {
	Unused  bool
	Charged quota.Amounts  // per meter, weights not applied
	Actual  []quota.Amount // per hold, weights applied
	Pricing pricing
}

// pricing is how a closing came to its cost: what a later correction of the
// price needs to know, when the token is gone.
type pricing struct {
	Provider string                  // of the pinned price; with Model "" when no price was pinned
	Model    string                  // its canonical name
	Classes  *estimator.TokenClasses // nil when they are not known
	Priced   bool                    // the cost is that of the classes at the pinned price
	Weights  []quota.Amount          // of the quotas on cost, in the order of the ledger's lines
}

// pricing says how a closing of the reservation comes to its cost.
func (t *reservationToken) pricing(r report) pricing {
	if t.Price == nil {
		return pricing{}
	}
	p := pricing{Provider: t.Price.Provider, Model: t.Price.Model, Classes: r.classes, Priced: r.priced}
	if !p.Priced {
		return p
	}
	var holds []int
	for i := range t.Holds {
		if h := &t.Holds[i]; h.Kind == quota.KindQuota && h.Meter == quota.MeterCost {
			holds = append(holds, i)
		}
	}
	slices.SortFunc(holds, func(a, b int) int { return t.usageKey(a).Compare(t.usageKey(b)) })
	for _, i := range holds {
		p.Weights = append(p.Weights, t.Holds[i].Weight)
	}
	return p
}

// The versions of the encoding. The first one had no pricing.
const (
	outcomeWithoutPricing = 1
	outcomeVersion        = 2
)

var errBadOutcome = errors.New("unreadable outcome of a closing")

func (o outcome) encode() []byte {
	b := make([]byte, 0, 128)
	b = append(b, outcomeVersion)
	b = msgp.AppendBool(b, o.Unused)
	b = appendAmounts(b, o.Charged)
	b = appendList(b, o.Actual)
	b = msgp.AppendString(b, o.Pricing.Provider)
	b = msgp.AppendString(b, o.Pricing.Model)
	b = appendClasses(b, o.Pricing.Classes)
	b = msgp.AppendBool(b, o.Pricing.Priced)
	return appendList(b, o.Pricing.Weights)
}

func appendList(b []byte, amounts []quota.Amount) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(amounts)))
	for _, amount := range amounts {
		b = msgp.AppendInt64(b, int64(amount))
	}
	return b
}

// appendClasses writes the six classes, or an empty array for none.
func appendClasses(b []byte, c *estimator.TokenClasses) []byte {
	if c == nil {
		return appendList(b, nil)
	}
	return appendList(b, []quota.Amount{
		c.Input.Amount(), c.CacheRead.Amount(), c.CacheWrite.Amount(), c.CacheWrite1h.Amount(), c.Output.Amount(), c.Reasoning.Amount(),
	})
}

func decodeOutcome(b []byte) (outcome, error) {
	var o outcome
	if len(b) == 0 || b[0] < outcomeWithoutPricing || b[0] > outcomeVersion {
		return o, errBadOutcome
	}
	r := reader{rest: b[1:]}
	o.Unused = r.boolean()
	o.Charged = r.amounts()
	o.Actual = r.list(MaxHolds)
	if b[0] >= outcomeVersion {
		o.Pricing.Provider, o.Pricing.Model = r.text(), r.text()
		o.Pricing.Classes = r.classes()
		o.Pricing.Priced = r.boolean()
		o.Pricing.Weights = r.list(MaxHolds)
	}
	if r.err != nil || len(r.rest) != 0 {
		return outcome{}, errBadOutcome
	}
	return o, nil
}

func (r *reader) list(most int) []quota.Amount {
	n := r.length(most)
	if n == 0 {
		return nil
	}
	amounts := make([]quota.Amount, n)
	for i := range amounts {
		amounts[i] = quota.Amount(r.integer())
	}
	return amounts
}

func (r *reader) classes() *estimator.TokenClasses {
	const six = 6
	counts := r.list(six)
	switch {
	case len(counts) == 0:
		return nil
	case len(counts) != six:
		r.err = errBadOutcome
		return nil
	}
	tokens := func(i int) quota.Tokens { return quota.Tokens(counts[i]) }
	return &estimator.TokenClasses{
		Input: tokens(0), CacheRead: tokens(1), CacheWrite: tokens(2), CacheWrite1h: tokens(3), Output: tokens(4), Reasoning: tokens(5),
	}
}
