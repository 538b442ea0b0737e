package reservation_test

import (
	"testing"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// A limit keeps a share for calls of higher priority; who is refused hears of what
// is left for calls like it.
func TestPriorities(t *testing.T) {
	onBothKinds(t, `
plans:
  pro:
    limits:
      - {name: tokens, meter: tokens, rate: 1000/day, keep_for: {interactive: 20%, critical: 5%}}
      - {name: slots, meter: in_flight, max: 4, match: {route: slow}, keep_for: {default: 25%}}
accounts:
  acme: {plan: pro}
`, func(t *testing.T, r *rig) {
		ask := func(p quota.Priority, tokens quota.Amount) reservation.Ask {
			return reservation.Ask{Account: "acme", Priority: p, Amounts: quota.Amounts{quota.MeterTokens: tokens}}
		}
		refuses := func(p quota.Priority, tokens quota.Amount, reason reservation.Reason, left, kept quota.Amount) {
			t.Helper()
			no := r.refused(ask(p, tokens))
			if no.Limit != "tokens" || no.Reason != reason || no.Remaining != left || no.Kept != kept {
				t.Errorf("%s asks %d: reason %d, %d left, %d kept; want reason %d, %d and %d", p, tokens, no.Reason, no.Remaining, no.Kept, reason, left, kept)
			}
		}
		refuses(quota.PriorityDefault, 751, reservation.ExceedsCapacity, 750, 250)
		g := r.reserve(ask(quota.PriorityBatch, 750))
		if left := g.Holds[0].Level.Remaining; left != 0 {
			t.Errorf("a batch call is told of %d that it can't have", left)
		}
		refuses(quota.PriorityDefault, 1, reservation.RateLimited, 0, 250)
		r.reserve(ask(quota.PriorityInteractive, 200))
		refuses(quota.PriorityInteractive, 1, reservation.RateLimited, 0, 50)
		r.reserve(ask(quota.PriorityCritical, 50))
		refuses(quota.PriorityCritical, 1, reservation.RateLimited, 0, 0)

		slow := map[string]string{"route": "slow"}
		for range 3 {
			r.reserve(reservation.Ask{Account: "acme", Labels: slow, Priority: quota.PriorityBatch})
		}
		if no := r.refused(reservation.Ask{Account: "acme", Labels: slow, Priority: quota.PriorityBatch}); no.Limit != "slots" || no.Kept != 1 {
			t.Errorf("refused by %s, which keeps %d", no.Limit, no.Kept)
		}
		r.reserve(reservation.Ask{Account: "acme", Labels: slow})

		kept := r.overview(slow)["tokens"].KeepFor
		if len(kept) != 2 || kept[0] != (reservation.KeptShare{Priority: quota.PriorityInteractive, Percent: 20, Kept: 250}) || kept[1].Kept != 50 {
			t.Errorf("the overview has %+v", kept)
		}
	})
}
