package reservation

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// report is what a usage comes to.
type report struct {
	amounts quota.Amounts  // without anything that was not stated
	use     *estimator.Use // nil when it is not known
	priced  bool           // the cost is that of the use, and not the caller's
}

// reported turns a usage into amounts per meter. The cost comes from the pinned
// price when it says what was used by class. The output is at least the tokens
// that were seen.
func (u Usage) reported(price *estimator.Price, seen quota.Tokens) (report, error) {
	if err := u.Amounts.Validate(); err != nil {
		return report{}, &InvalidError{Field: "usage", Problem: err.Error()}
	}
	if _, stated := u.Amounts[quota.MeterInFlight]; stated {
		return report{}, &InvalidError{Field: `usage.amounts["in_flight"]`, Problem: "slots are freed by the Refund itself", Bound: "leave it out"}
	}
	reported := report{amounts: make(quota.Amounts, len(u.Amounts)+4)}
	for meter, amount := range u.Amounts {
		reported.amounts[meter] = amount
	}
	use := u.Use
	if u.ProviderUsage != nil {
		if use != nil {
			return report{}, &InvalidError{Field: "usage", Problem: "both provider_usage and tokens or units are given", Bound: "one of them"}
		}
		normal, err := estimator.NormalizeUsage(u.Provider, u.ProviderUsage)
		if err != nil {
			return report{}, &InvalidError{Field: "usage.provider_usage", Problem: err.Error()}
		}
		use = &normal
	}
	if use == nil {
		return reported, nil
	}
	told, err := use.Tokens.TotalOutput()
	if err != nil {
		return report{}, &InvalidError{Field: "usage.tokens", Problem: err.Error()}
	}
	if seen > told {
		more := *use
		more.Tokens.Output += seen - told
		use = &more
	}
	reported.use = use
	reported.priced, err = addUse(reported.amounts, use, price)
	return reported, err
}

// addUse adds the token meters, and with a price the cost, to amounts. What
// is stated already stays: a caller that knows the bill knows better. It says
// whether the cost is by the price.
func addUse(amounts quota.Amounts, use *estimator.Use, price *estimator.Price) (priced bool, err error) {
	if err := use.Check(); err != nil {
		return false, &InvalidError{Field: "usage", Problem: err.Error()}
	}
	counted, err := use.Tokens.Amounts()
	if err != nil {
		return false, &InvalidError{Field: "usage.tokens", Problem: err.Error()}
	}
	if price != nil {
		cost, err := price.Cost(*use)
		if err == nil {
			err = cost.Amount().Check()
		}
		if err != nil {
			return false, &InvalidError{Field: "usage", Problem: fmt.Sprintf("cost: %v", err)}
		}
		counted[quota.MeterCost] = cost.Amount()
		_, stated := amounts[quota.MeterCost]
		priced = !stated
	}
	addMissing(amounts, counted)
	return priced, nil
}

// addMissing adds the meters that amounts does not state.
func addMissing(amounts, more quota.Amounts) {
	for meter, amount := range more {
		if _, stated := amounts[meter]; !stated {
			amounts[meter] = amount
		}
	}
}

// settle says what a reservation's closing charges: per meter and per hold.
// Meters that were held and not reported count as used in full.
func (t *reservationToken) settle(reported report, unused bool) (outcome, error) {
	o := outcome{Unused: unused, Charged: make(quota.Amounts, len(t.Asked)+len(reported.amounts)), Actual: make([]quota.Amount, len(t.Holds)), Asked: t.Asked}
	o.Pricing = t.pricing(reported)
	for meter, amount := range t.Asked {
		if unused {
			amount = 0
		}
		o.Charged[meter] = amount
	}
	for meter, amount := range reported.amounts {
		o.Charged[meter] = amount
	}
	for i := range t.Holds {
		h := &t.Holds[i]
		if h.Kind == quota.KindSlots || h.Missed {
			continue
		}
		var err error
		if o.Actual[i], err = h.weighed(o.Charged[h.Meter]); err != nil {
			return outcome{}, err
		}
	}
	return o, nil
}

// weighed is what a usage of the hold's meter takes from it.
func (h *plannedHold) weighed(amount quota.Amount) (quota.Amount, error) {
	weighed, ok := amount.Times(h.Weight)
	if !ok {
		return 0, &InvalidError{
			Field:   fmt.Sprintf("usage.amounts[%q]", h.Meter),
			Problem: fmt.Sprintf("%d times the weight %d of limit %q is too much", amount, h.Weight, h.Name),
			Bound:   fmt.Sprintf("at most %d", quota.MaxAmount),
		}
	}
	return weighed, nil
}

// unweighed is the usage of the hold's meter that takes so much from it, rounded up.
func (h *plannedHold) unweighed(taken quota.Amount) quota.Amount {
	return (taken + h.Weight - 1) / h.Weight
}

// expired says what the end of the lease charged, from the engine's amounts.
func (t *reservationToken) expired(actual []quota.Amount) outcome {
	o := outcome{Charged: quota.Amounts{}, Actual: actual, Pricing: t.pricing(report{}), Asked: t.Asked}
	for i := range t.Holds {
		h := &t.Holds[i]
		if h.Kind == quota.KindSlots || h.Shadow {
			continue // a shadow limit changes nothing about what the account is charged
		}
		switch charges := h.OnExpiry == quota.ExpiryCharge; {
		case charges && h.Weight > 0 && actual[i] < h.Amount:
			// An envelope is charged what its children left of it.
			o.Charged[h.Meter] = min(t.Asked[h.Meter], h.unweighed(actual[i]))
		case charges && h.Weight > 0 && actual[i] > h.Amount+h.Risk:
			o.Charged[h.Meter] = h.unweighed(actual[i]) // a Renew told more than it held
		case charges:
			o.Charged[h.Meter] = t.Asked[h.Meter]
		case h.Weight > 0 && actual[i] > 0:
			// Given back but for what a Renew told.
			o.Charged[h.Meter] = max(o.Charged[h.Meter], h.unweighed(actual[i]))
		}
	}
	return o
}

// hash identifies a Refund: equal amounts are the same Refund, in whatever
// form they were reported.
func (o outcome) hash() Hash {
	b := make([]byte, 0, 256)
	b = append(b, "closing 1"...)
	if o.Unused {
		b = append(b, 1)
	}
	for _, meter := range sortedKeys(o.Charged) {
		b = binary.AppendUvarint(b, uint64(len(meter)))
		b = append(b, meter...)
		b = binary.AppendVarint(b, int64(o.Charged[meter]))
	}
	sum := sha256.Sum256(b)
	return Hash(sum[:len(Hash{})])
}

// closing is the ledger's row for one end of the reservation.
func (t *reservationToken) closing(rank ledger.Rank, body Hash, o outcome, late bool, closedAt time.Time) ledger.Closing {
	o = t.withoutMissed(o)
	c := ledger.Closing{
		Account:      t.Account,
		Reservation:  t.ID,
		Minted:       t.ID.Minted(),
		ClosedAt:     closedAt,
		Rank:         rank,
		Body:         body,
		Outcome:      o.encode(),
		Late:         late,
		Degraded:     t.Degraded,
		PriceVersion: t.PriceVersion,
		Labels:       t.Labels,
	}
	for i := range t.Holds {
		h := &t.Holds[i]
		if h.Kind == quota.KindQuota {
			c.Lines = append(c.Lines, ledger.Line{Limit: h.Limit, Scope: h.Scope, Period: h.Period.Key, Meter: h.Meter, Amount: o.Actual[i]})
		}
	}
	// What was asked for and not charged, as by most expiries, has a total too:
	// reports set what was held against what was used.
	meters := sortedKeys(o.Charged)
	for meter := range t.Asked {
		if _, charged := o.Charged[meter]; !charged {
			meters = append(meters, meter)
		}
	}
	slices.Sort(meters)
	for _, meter := range meters {
		c.Lines = append(c.Lines, ledger.Line{Period: t.TotalsPeriod, Meter: meter, Amount: o.Charged[meter], Held: t.Asked[meter]})
	}
	return c
}

// closingOf rebuilds the ledger's row from what an engine recorded.
func (t *reservationToken) closingOf(record Record) (ledger.Closing, error) {
	if record.Rank == ledger.RankExpired {
		if len(record.Actual) != len(t.Holds) {
			return ledger.Closing{}, errBadOutcome
		}
		return t.closing(ledger.RankExpired, Hash{}, t.expired(record.Actual), false, record.ClosedAt), nil
	}
	o, err := decodeOutcome(record.Outcome)
	if err != nil {
		return ledger.Closing{}, err
	}
	if len(o.Actual) != len(t.Holds) {
		return ledger.Closing{}, errBadOutcome
	}
	return t.closing(ledger.RankRefunded, record.Body, o, record.Late, record.ClosedAt), nil
}

// receipt shows a closing to the caller.
func (t *reservationToken) receipt(o outcome, late bool, closedAt time.Time) Receipt {
	r := Receipt{
		Charged: quota.Amounts{}, GivenBack: quota.Amounts{}, Overrun: quota.Amounts{},
		Late: late, Released: o.Unused, ClosedAt: closedAt,
	}
	for meter, charged := range o.Charged {
		r.Charged[meter] = charged
		switch asked := t.Asked[meter]; {
		case asked > charged:
			r.GivenBack[meter] = asked - charged
		case charged > asked:
			r.Overrun[meter] = charged - asked
		}
	}
	for meter, asked := range t.Asked { // an expiry charges only some meters
		if _, ok := o.Charged[meter]; !ok && asked > 0 {
			r.GivenBack[meter] = asked
		}
	}
	return r
}

// usageKey names the ledger's row of a quota hold.
func (t *reservationToken) usageKey(hold int) ledger.UsageKey {
	h := &t.Holds[hold]
	return ledger.UsageKey{Account: t.Account, Limit: h.Limit, Scope: h.Scope, Period: h.Period.Key, Meter: h.Meter}
}

// confirmation is what the engine must learn of the ledger's verdict.
func (t *reservationToken) confirmation(raw []byte, v ledger.Verdict) (ConfirmRequest, error) {
	o, err := decodeOutcome(v.Outcome)
	if err != nil {
		return ConfirmRequest{}, err
	}
	if len(o.Actual) != len(t.Holds) {
		return ConfirmRequest{}, errors.New("the ledger's outcome has another number of holds than the reservation")
	}
	c := ConfirmRequest{
		Account: t.Account, ID: t.ID, Lease: t.Lease, Retention: t.Retention,
		Rank: v.Rank, Body: v.Body, Outcome: v.Outcome, Actual: o.Actual, Late: v.Late, ClosedAt: v.ClosedAt,
		Token: raw,
	}
	for _, usage := range v.Usage {
		for i := range t.Holds {
			h := &t.Holds[i]
			if h.Kind == quota.KindQuota && h.Limit == usage.Limit && h.Scope == usage.Scope && h.Period.Key == usage.Period {
				c.Usage = append(c.Usage, CounterUsage{Counter: h.Counter, Period: h.Period, Used: countable(usage.Used), Version: usage.Version})
			}
		}
	}
	return c, nil
}
