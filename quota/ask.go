package quota

import (
	"fmt"
)

// MaxMeters bounds the meters that one call may state.
const MaxMeters = 32

// Validate returns an error that names the meter and the bound unless there
// are at most [MaxMeters] meters, each with a valid name and an amount from 0
// to [MaxAmount], and in_flight, when stated, is 1.
func (a Amounts) Validate() error {
	if len(a) > MaxMeters {
		return fmt.Errorf("amounts: %d meters are stated, at most %d are accepted", len(a), MaxMeters)
	}
	var faulty Meter
	var problem error
	for meter, amount := range a {
		var err error
		if p := meterProblem(meter); p != "" {
			err = fmt.Errorf("amounts[%s]: %s", quoteShort(string(meter)), p)
		} else if e := amount.Check(); e != nil {
			err = fmt.Errorf("amounts[%q]: %w", meter, e)
		} else if meter == MeterInFlight && amount != 1 {
			err = inFlightError(amount)
		}
		if err != nil && (problem == nil || meter < faulty) {
			faulty, problem = meter, err
		}
	}
	return problem
}

func inFlightError(amount Amount) error {
	return fmt.Errorf("amounts[%q]: %w: a call always takes 1 slot, not %d; leave the meter out", MeterInFlight, ErrOutOfRange, amount)
}

// Ask returns what a call that states these amounts asks of the limit, in the
// limit's meter: the stated amount times the weight of the call's labels. What
// is not stated counts as 1 for requests and as 0 for every other meter. A
// limit on in_flight is always asked for exactly 1 slot.
//
// The error wraps [ErrOutOfRange] when the amount is negative, or it or the
// product is above [MaxAmount], or when in_flight is stated as other than 1.
func (l Limit) Ask(amounts Amounts, labels map[string]string) (Amount, error) {
	amount, stated := amounts[l.Meter]
	switch {
	case l.Meter == MeterInFlight:
		if stated && amount != 1 {
			return 0, inFlightError(amount)
		}
		return 1, nil
	case !stated && l.Meter == MeterRequests:
		amount = 1
	}
	if err := amount.Check(); err != nil {
		return 0, fmt.Errorf("amounts[%q]: %w", l.Meter, err)
	}
	weight := l.Weight(labels)
	weighed, ok := amount.Times(weight)
	if !ok {
		return 0, fmt.Errorf("amounts[%q]: %w: %d times the weight %d of limit %q is above %d", l.Meter, ErrOutOfRange, amount, weight, l.Name, MaxAmount)
	}
	return weighed, nil
}

// Weight returns the factor by which the limit multiplies what a call with
// these labels uses: the weight of the first cost rule that matches, else 1.
func (l Limit) Weight(labels map[string]string) Amount {
	for _, rule := range l.Costs {
		if matchesAll(rule.Match, labels) {
			return rule.Weight
		}
	}
	return 1
}
