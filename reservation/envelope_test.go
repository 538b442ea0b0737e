package reservation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

const envelopePolicy = `
plans:
  agents:
    limits:
      - {name: requests, meter: requests, rate: 100/min, burst: 100}
      - {name: tokens, meter: tokens, rate: 1/day, burst: 10000}
    quotas:
      - {name: monthly, meter: tokens, amount: 100000, period: month}
accounts:
  acme: {plan: agents}
  globex: {plan: agents}
`

// An agent's envelope through the broker: what its calls take, leave and overrun, how
// its closing ends them, and what the ledger has in the end.
func TestEnvelope(t *testing.T) {
	onBothKinds(t, envelopePolicy, func(t *testing.T, r *rig) {
		tokens := func(n quota.Amount) quota.Amounts { return quota.Amounts{quota.MeterTokens: n} }
		used := func(n quota.Amount) reservation.Usage { return reservation.Usage{Amounts: tokens(n)} }
		lease := 10 * time.Minute
		envelope := r.reserve(reservation.Ask{Account: "acme", Amounts: tokens(6000), Lease: &lease})
		left := func() quota.Amount { return r.overview(nil)["tokens"].Level.Remaining }
		in := func(n quota.Amount) reservation.Ask {
			return reservation.Ask{Account: "acme", Amounts: tokens(n), Parent: envelope.Reservation}
		}
		// Every call is a request, though the envelope was made for one.
		a, b := r.reserve(in(3000)), r.reserve(in(2000))
		if got := left(); got != 4000 {
			t.Errorf("%d tokens remain, want 4000: the calls take from their envelope", got)
		}
		no := r.refused(in(1001))
		if no.Reason != reservation.EnvelopeExhausted || no.Remaining != 1000 || no.Retryable() {
			t.Errorf("refused %+v, want the envelope with 1000 left, not retryable", no)
		}
		r.refund(a.Reservation, used(500))
		c := r.reserve(in(3500))
		r.refund(b.Reservation, used(2100)) // nothing is left: 100 are the limit's
		if got := left(); got != 3900 {
			t.Errorf("%d tokens remain, want 3900", got)
		}
		story, err := r.Broker.Reservation(context.Background(), c.Reservation)
		if _, id, _ := r.Broker.Identify(envelope.Reservation); err != nil || story.Parent != id {
			t.Errorf("the story has parent %s, %v; want %s", story.Parent, err, id)
		}

		r.refund(envelope.Reservation, reservation.Usage{Unused: true})
		if _, err := r.Broker.Reserve(context.Background(), in(1)); !errors.Is(err, reservation.ErrParentEnded) {
			t.Errorf("a call of a closed envelope: %v, want ErrParentEnded", err)
		}
		if receipt := r.refund(c.Reservation, used(400)); !receipt.Late {
			t.Errorf("the call's Refund after its envelope was closed is not late: %+v", receipt)
		}
		r.settled()
		r.balanced()
		if got := r.overview(nil)["monthly"].Posted; got != 3000 {
			t.Errorf("the ledger has %d tokens, want 500 + 2100 + 400", got)
		}
		if got := left(); got != 7000 {
			t.Errorf("%d tokens remain, want 7000", got)
		}
	})
}

// A parent is a reservation of the same account; no other tells that it exists.
func TestEnvelopeOfAnotherAccount(t *testing.T) {
	onBothKinds(t, envelopePolicy, func(t *testing.T, r *rig) {
		other := r.reserve(reservation.Ask{Account: "globex", Amounts: quota.Amounts{quota.MeterTokens: 10}})
		for _, parent := range []string{other.Reservation, "nothing", other.Reservation[1:]} {
			_, err := r.Broker.Reserve(context.Background(), reservation.Ask{Account: "acme", Parent: parent})
			if !errors.Is(err, reservation.ErrParentUnknown) {
				t.Errorf("parent %.8s: %v, want ErrParentUnknown", parent, err)
			}
		}
	})
}
