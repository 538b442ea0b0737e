package reservation_test

import (
	"testing"
	"time"

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

// Who waits with a low priority takes nothing of what is kept, nor keeps it from others
// until a start: it is refused, and asks again. Who may take all is booked ahead.
func TestAKeptShareIsThereWhileOthersWouldWait(t *testing.T) {
	onBothKinds(t, `
plans:
  pro:
    limits:
      - {name: tokens, meter: tokens, rate: 1000/day, keep_for: {interactive: 20%}}
      - {name: own, meter: requests, rate: 1/h, burst: 1, match: {route: slow}}
accounts:
  acme: {plan: pro}
`, func(t *testing.T, r *rig) {
		wait := time.Hour
		ask := func(p quota.Priority, tokens quota.Amount, route string) reservation.Ask {
			return reservation.Ask{Account: "acme", Priority: p, Amounts: quota.Amounts{quota.MeterTokens: tokens, quota.MeterRequests: 1}, MaxWait: &wait, Labels: map[string]string{"route": route}}
		}
		r.reserve(ask(quota.PriorityBatch, 790, "slow"))
		if no := r.refused(ask(quota.PriorityBatch, 1, "slow")); no.Limit != "own" || no.RetryAt.IsZero() {
			t.Errorf("a batch call that its own limit keeps waiting is refused by %s until %s", no.Limit, no.RetryAt)
		}
		if no := r.refused(ask(quota.PriorityBatch, 11, "")); no.Limit != "tokens" || no.Kept != 200 || no.RetryAt.IsZero() {
			t.Errorf("a batch call is refused by %s, which keeps %d, until %s; want tokens, 200 and an instant", no.Limit, no.Kept, no.RetryAt)
		}
		if g := r.reserve(ask(quota.PriorityInteractive, 200, "")); !g.StartAt.IsZero() {
			t.Errorf("what is kept is there from %s on, want at once", g.StartAt)
		}
		if g := r.reserve(ask(quota.PriorityInteractive, 12, "")); g.StartAt.IsZero() {
			t.Error("an interactive call that waits is not booked ahead")
		}
	})
}

// A share that is kept of a queue is of its places: what it accepts has its start as ever.
func TestAQueueThatKeepsPlacesGivesStarts(t *testing.T) {
	onBothKinds(t, `
plans:
  pro:
    limits:
      - {name: lane, meter: requests, algorithm: leaky_queue, rate: 1/s, queue: 5, keep_for: {interactive: 20%}}
accounts:
  acme: {plan: pro}
`, func(t *testing.T, r *rig) {
		wait := time.Minute
		ask := reservation.Ask{Account: "acme", Priority: quota.PriorityBatch, Amounts: quota.Amounts{quota.MeterRequests: 1}, MaxWait: &wait}
		r.reserve(ask)
		if g := r.reserve(ask); g.StartAt.IsZero() {
			t.Error("the second in a queue of one a second starts at once")
		}
	})
}
