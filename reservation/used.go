package reservation

import (
	"context"
	"errors"

	"github.com/budgetd/budgetd/quota"
)

// usedUp is the part of a charge that no limit may refuse, since it was used
// before anybody asked. It is a reservation that holds nothing, so that it is
// granted, and that is refunded at once with all it used: an overrun.
type usedUp struct {
	charged quota.Amounts            // per meter
	actual  map[Counter]quota.Amount // per counter of the plan
}

// holdNothing takes the amounts out of a plan's holds.
func (u *usedUp) holdNothing(holds []plannedHold) {
	u.actual = make(map[Counter]quota.Amount, len(holds))
	for i := range holds {
		u.actual[holds[i].Counter] = holds[i].Amount
		holds[i].Amount = 0
	}
}

// chargeUsed charges what was used, beyond the limits where they have less left.
func (b *Broker) chargeUsed(ctx context.Context, w *work) (Decision, error) {
	// The reservation is for the idempotency key: the Refund needs none, and
	// goes to the ledger alone while the engine is silent.
	d, err := b.commit(ctx, w)
	if err != nil && !errors.Is(err, ErrUnavailable) {
		return Decision{}, err
	}
	token := &w.token // of the key's first call, where there was one
	o, err := token.settle(report{amounts: w.used.charged, use: w.spent.use, priced: w.spent.priced}, false)
	if err != nil {
		return Decision{}, err
	}
	for i := range token.Holds {
		if amount, known := w.used.actual[token.Holds[i].Counter]; known {
			o.Actual[i] = amount
		}
	}
	done, err := b.conclude(ctx, token, w.raw, o, false)
	if err != nil {
		return Decision{}, err
	}
	if done.record.Body != o.hash() {
		return Decision{}, ErrConflict
	}
	if o, err = decodeOutcome(done.record.Outcome); err != nil {
		return Decision{}, err
	}
	grant := &Grant{
		Reservation: tokenText(w.raw), State: StateSettled, Late: done.record.Late, Replayed: done.replayed || d.Grant != nil && d.Grant.Replayed,
		PriceVersion: token.PriceVersion, Charged: o.Charged, Now: done.now,
	}
	shown := *token
	shown.Holds = append([]plannedHold(nil), token.Holds...)
	for i := range shown.Holds {
		shown.Holds[i].Amount = o.Actual[i]
	}
	grant.Holds = shown.shown(done.levels)
	for i := range grant.Holds {
		h := &grant.Holds[i]
		h.LevelKnown = h.LevelKnown && h.Level.Seeded // nothing was asked of a quota, so it need not be
	}
	return Decision{Grant: grant}, nil
}
