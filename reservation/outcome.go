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
	Asked   quota.Amounts   // what the reservation held per meter, weights not applied; nil: not recorded
	Shadow  []ShadowRefusal // shadow limits that would have refused the call
}

// pricing is how a closing came to its cost: what a later correction of the
// price needs to know, when the token is gone.
type pricing struct {
	Provider string         // of the pinned price; with Model "" when no price was pinned
	Model    string         // its canonical name
	Use      *estimator.Use // nil when it is not known
	Priced   bool           // the cost is that of the use at the pinned price
	Weights  []quota.Amount // of the quotas on cost, in the order of the ledger's lines
}

// pricing says how a closing of the reservation comes to its cost.
func (t *reservationToken) pricing(r report) pricing {
	if t.Price == nil {
		return pricing{}
	}
	p := pricing{Provider: t.Price.Provider, Model: t.Price.Model, Use: r.use, Priced: r.priced}
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

// The versions of the encoding. The first one had no pricing, the second one six
// classes of tokens and nothing else, the third one did not say what was asked
// nor which shadow limits would have refused.
const (
	outcomeWithoutPricing = 1
	outcomeWithSixClasses = 2
	outcomeWithoutAsked   = 3
	outcomeVersion        = 4
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
	b = appendUse(b, o.Pricing.Use)
	b = msgp.AppendBool(b, o.Pricing.Priced)
	b = appendList(b, o.Pricing.Weights)
	b = msgp.AppendBool(b, o.Asked != nil)
	b = appendAmounts(b, o.Asked)
	return appendShadowRefusals(b, o.Shadow)
}

func appendList(b []byte, amounts []quota.Amount) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(amounts)))
	for _, amount := range amounts {
		b = msgp.AppendInt64(b, int64(amount))
	}
	return b
}

// appendUse writes the classes of tokens, the units, the tier and the speed, or
// an empty array for none.
func appendUse(b []byte, use *estimator.Use) []byte {
	if use == nil {
		return appendList(b, nil)
	}
	classes, units := use.Tokens.List(), use.Units.List()
	b = msgp.AppendArrayHeader(b, uint32(len(classes)))
	for _, n := range classes {
		b = msgp.AppendInt64(b, int64(n))
	}
	b = msgp.AppendArrayHeader(b, uint32(len(units)))
	for _, n := range units {
		b = msgp.AppendInt64(b, n)
	}
	b = msgp.AppendString(b, use.Tier)
	return msgp.AppendString(b, use.Speed)
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
	if b[0] > outcomeWithoutPricing {
		o.Pricing.Provider, o.Pricing.Model = r.text(), r.text()
		if b[0] == outcomeWithSixClasses {
			o.Pricing.Use = r.sixClasses()
		} else {
			o.Pricing.Use = r.use()
		}
		o.Pricing.Priced = r.boolean()
		o.Pricing.Weights = r.list(MaxHolds)
	}
	if b[0] > outcomeWithoutAsked {
		if known, asked := r.boolean(), r.amounts(); known {
			o.Asked = asked
		} else if len(asked) > 0 && r.err == nil {
			r.err = errBadOutcome
		}
		o.Shadow = r.shadowRefusals()
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

func (r *reader) use() *estimator.Use {
	use := &estimator.Use{}
	classes, units := use.Tokens.List(), use.Units.List()
	switch n := r.length(len(classes)); n {
	case 0:
		return nil
	case len(classes):
	default:
		r.err = errBadOutcome
		return nil
	}
	for i := range classes {
		classes[i] = quota.Tokens(r.integer())
	}
	if r.length(len(units)) != len(units) && r.err == nil {
		r.err = errBadOutcome
	}
	for i := range units {
		units[i] = r.integer()
	}
	use.Tokens, use.Units = estimator.TokenClassesOf(classes), estimator.UnitsOf(units)
	use.Tier, use.Speed = r.text(), r.text()
	return use
}

// sixClasses reads a use as the second version wrote it.
func (r *reader) sixClasses() *estimator.Use {
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
	return &estimator.Use{Tokens: estimator.TokenClasses{
		Input: tokens(0), CacheRead: tokens(1), CacheWrite: tokens(2), CacheWrite1h: tokens(3), Output: tokens(4), Reasoning: tokens(5),
	}}
}
