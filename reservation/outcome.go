package reservation

import (
	"errors"

	"github.com/tinylib/msgp/msgp"

	"github.com/budgetd/budgetd/quota"
)

// outcome is what a closing said, kept by engine and ledger as opaque bytes so
// that a repeated Refund gets the first answer.
type outcome struct {
	Unused  bool
	Charged quota.Amounts  // per meter, weights not applied
	Actual  []quota.Amount // per hold, weights applied
}

const outcomeVersion = 1

var errBadOutcome = errors.New("unreadable outcome of a closing")

func (o outcome) encode() []byte {
	b := make([]byte, 0, 128)
	b = append(b, outcomeVersion)
	b = msgp.AppendBool(b, o.Unused)
	b = appendAmounts(b, o.Charged)
	b = msgp.AppendArrayHeader(b, uint32(len(o.Actual)))
	for _, amount := range o.Actual {
		b = msgp.AppendInt64(b, int64(amount))
	}
	return b
}

func decodeOutcome(b []byte) (outcome, error) {
	var o outcome
	if len(b) == 0 || b[0] != outcomeVersion {
		return o, errBadOutcome
	}
	r := reader{rest: b[1:]}
	o.Unused = r.boolean()
	o.Charged = r.amounts()
	o.Actual = make([]quota.Amount, r.length(MaxHolds))
	for i := range o.Actual {
		o.Actual[i] = quota.Amount(r.integer())
	}
	if r.err != nil || len(r.rest) != 0 {
		return outcome{}, errBadOutcome
	}
	return o, nil
}
