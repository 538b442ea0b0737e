package reservation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// The start of an account's own limit is ten seconds away, and that of the pool at once.
const boundedPolicy = `
pools:
  org: ORG
plans:
  pro:
    limits:
      - {name: calls, meter: requests, rate: 6/min, burst: 1, match: {route: slow}}
      - {name: jobs, meter: in_flight, max: 1, match: {kind: job}}
accounts:
  acme: {plan: pro}
  globex: {plan: pro}
`

func onBounded(t *testing.T, org string, test func(*testing.T, *rig)) {
	onBothKinds(t, boundedWith(org), test)
}

// boundedWith is the policy with a limit of the pool.
func boundedWith(org string) string { return strings.Replace(boundedPolicy, "ORG", org, 1) }

func boundedAsk(account, route string, tokens quota.Amount, wait time.Duration) reservation.Ask {
	amounts := quota.Amounts{quota.MeterRequests: 1}
	if tokens > 0 {
		amounts[quota.MeterTokens] = tokens
	}
	return reservation.Ask{Account: account, Amounts: amounts, Labels: map[string]string{"route": route}, MaxWait: &wait}
}

// Who would wait longer than the pool lets it is told when it would have started, and
// keeps nobody from the pool.
func TestAPoolBoundsHowFarAheadItIsBooked(t *testing.T) {
	for _, way := range []struct {
		bound string
		most  time.Duration
	}{{"2s", 2 * time.Second}, {"0s", 0}} {
		t.Run(way.bound, func(t *testing.T) {
			onBounded(t, "{meter: tokens, rate: 1000/s, max_wait: "+way.bound+"}", func(t *testing.T, r *rig) {
				if got := r.overview(map[string]string{"route": "slow"})["org"].MaxWait; got == nil || *got != way.most {
					t.Errorf("the overview has %v, want %s", got, way.bound)
				}
				r.reserve(boundedAsk("acme", "slow", 100, time.Minute))
				no := r.refused(boundedAsk("acme", "slow", 100, time.Minute))
				ahead := no.RetryAt.Sub(no.Now)
				if no.Limit != "calls" || no.Reason != reservation.RateLimited || ahead <= 9*time.Second || ahead > 10*time.Second {
					t.Errorf("refused by %s until %s ahead, want calls and the start in 10 s", no.Limit, ahead)
				}
				if want := (reservation.WaitBound{Limit: "org", Most: way.most}); no.WaitBound != want {
					t.Errorf("it is told of %+v, want %+v", no.WaitBound, want)
				}
				dry := boundedAsk("acme", "slow", 100, time.Minute)
				dry.DryRun = true
				if no := r.refused(dry); no.WaitBound.Limit != "org" {
					t.Errorf("a dry run is told of %+v", no.WaitBound)
				}
				// It would not have waited so long itself, or not at all.
				for _, wait := range []time.Duration{0, 5 * time.Second} {
					if no := r.refused(boundedAsk("acme", "slow", 100, wait)); no.WaitBound.Limit != "" {
						t.Errorf("one who waits %s is told of %+v", wait, no.WaitBound)
					}
				}
				if g := r.reserve(boundedAsk("globex", "", 800, 0)); !g.StartAt.IsZero() {
					t.Errorf("another account starts at %s, want at once", g.StartAt)
				}
				// The pool asks the same of who waits for itself: 100 are left, 1,000 a second.
				own := boundedAsk("globex", "", 1000, time.Minute)
				if way.most == 0 {
					if no := r.refused(own); no.Limit != "org" || no.WaitBound.Limit != "org" || no.RetryAt.Sub(no.Now) > time.Second {
						t.Errorf("refused %+v, want org within a second", no)
					}
				} else if g := r.reserve(own); g.StartsIn <= 0 || g.StartsIn > time.Second {
					t.Errorf("booked %s ahead, want up to a second", g.StartsIn)
				}
			})
		})
	}
}

// What bounds nothing: no word, a limit in shadow or off, one of which nothing is asked.
func TestWhatDoesNotBoundWaits(t *testing.T) {
	for name, way := range map[string]struct {
		org    string
		tokens quota.Amount
	}{
		"no word":       {"{meter: tokens, rate: 1000/s}", 100},
		"in shadow":     {"{meter: tokens, rate: 1000/s, max_wait: 0s, mode: shadow}", 100},
		"off":           {"{meter: tokens, rate: 1000/s, max_wait: 0s, mode: off}", 100},
		"asked nothing": {"{meter: tokens, rate: 1000/s, max_wait: 0s}", 0},
		"not met":       {"{meter: tokens, rate: 1000/s, max_wait: 0s, match: {route: fast}}", 100},
		"long":          {"{meter: tokens, rate: 1000/s, max_wait: 10s}", 100},
	} {
		t.Run(name, func(t *testing.T) {
			onBounded(t, way.org, func(t *testing.T, r *rig) {
				r.reserve(boundedAsk("acme", "slow", way.tokens, time.Minute))
				ask := boundedAsk("acme", "slow", way.tokens, time.Minute)
				ask.Key = "k"
				g := r.reserve(ask)
				if g.StartsIn <= 9*time.Second || g.StartsIn > 10*time.Second {
					t.Fatalf("booked %s ahead, want 10 s", g.StartsIn)
				}
				// A start that was given stands, whatever is stated later.
				r.setPolicy(boundedWith("{meter: tokens, rate: 1000/s, max_wait: 0s}"))
				if again := r.reserve(ask); !again.Replayed || !again.StartAt.Equal(g.StartAt) {
					t.Errorf("the repeat starts at %s, want %s", again.StartAt, g.StartAt)
				}
				no := r.refused(boundedAsk("acme", "slow", 100, time.Minute))
				if no.WaitBound.Limit != "org" || no.RetryAt.Before(g.StartAt) {
					t.Errorf("then refused until %s by %+v", no.RetryAt, no.WaitBound)
				}
			})
		})
	}
}

// The least of several counts, a plan's own limit too, of every algorithm.
func TestTheLeastMaxWaitCounts(t *testing.T) {
	for _, algorithm := range []string{"token_bucket", "gcra", "fixed_window", "sliding_window", "sliding_log"} {
		t.Run(algorithm, func(t *testing.T) {
			onBothKinds(t, `
pools:
  org: {meter: tokens, rate: 1000/s, max_wait: 30s}
plans:
  pro:
    limits:
      - {name: calls, meter: requests, rate: 1/10s, match: {route: slow}}
      - {name: pages, meter: pages, rate: 1000/h, algorithm: `+algorithm+`, max_wait: 3s}
accounts:
  acme: {plan: pro}
`, func(t *testing.T, r *rig) {
				ask := boundedAsk("acme", "slow", 1, time.Minute)
				r.reserve(ask)
				if g := r.reserve(ask); g.StartAt.IsZero() {
					t.Error("without pages it is not booked ahead")
				}
				ask.Amounts["pages"] = 1
				if no := r.refused(ask); no.Limit != "calls" || no.WaitBound != (reservation.WaitBound{Limit: "pages", Most: 3 * time.Second}) {
					t.Errorf("with pages it is refused by %s, %+v", no.Limit, no.WaitBound)
				}
			})
		})
	}
}

// A queue gives its starts to calls that state no wait: no further ahead than the pool
// lets them be booked. Who states one is never given a later start.
func TestAPoolBoundsWhatAQueueDelays(t *testing.T) {
	onBothKinds(t, `
pools:
  org: {meter: tokens, rate: 1000/s, max_wait: 2s}
plans:
  pro:
    limits:
      - {name: lane, meter: requests, algorithm: leaky_queue, rate: 1/s, queue: 4}
      - {name: kept, meter: pages, rate: 1000/s, keep_for: {interactive: 20%}}
accounts:
  acme: {plan: pro}
  globex: {plan: pro}
`, func(t *testing.T, r *rig) {
		in := func(account string, amounts quota.Amounts, wait time.Duration) reservation.Ask {
			return reservation.Ask{Account: account, Amounts: amounts, MaxWait: &wait}
		}
		tokens := quota.Amounts{quota.MeterTokens: 1}
		for i := range 3 {
			if g := r.reserve(in("acme", tokens, 0)); g.StartsIn.Round(100*time.Millisecond) != time.Duration(i)*time.Second {
				t.Errorf("call %d starts in %s", i, g.StartsIn)
			}
		}
		for _, wait := range []time.Duration{0, time.Minute} {
			no := r.refused(in("acme", tokens, wait))
			if no.Limit != "lane" || no.WaitBound.Limit != "org" || no.RetryAt.Sub(no.Now).Round(100*time.Millisecond) != 3*time.Second {
				t.Errorf("the fourth, which waits %s, is refused by %s for %s, %+v", wait, no.Limit, no.RetryAt.Sub(no.Now), no.WaitBound)
			}
		}
		r.reserve(in("acme", nil, 0)) // it does not meet the pool
		if no := r.refused(in("acme", tokens, time.Minute)); no.Limit != "lane" || no.WaitBound.Limit != "" {
			t.Errorf("of a full queue %s tells, %+v", no.Limit, no.WaitBound)
		}

		// A share that is kept: the queue's start, within what the caller waits.
		pages := quota.Amounts{"pages": 1}
		r.reserve(in("globex", pages, 0))
		r.reserve(in("globex", pages, 0))
		if no := r.refused(in("globex", pages, 1500*time.Millisecond)); no.Limit != "lane" {
			t.Errorf("refused by %s, want the queue, whose start is 2 s ahead", no.Limit)
		}
		if g := r.reserve(in("globex", pages, 3*time.Second)); g.StartAt.IsZero() {
			t.Error("the queue's start is not given")
		}
	})
}

// A queue beside a pool that lets nobody wait: who is next starts at once.
func TestAQueueBesideAPoolWithoutWaits(t *testing.T) {
	onBothKinds(t, `
pools:
  org: {meter: tokens, rate: 1000/s, max_wait: 0s}
plans:
  pro:
    limits:
      - {name: lane, meter: requests, algorithm: leaky_queue, rate: 1/s, queue: 4}
accounts:
  acme: {plan: pro}
`, func(t *testing.T, r *rig) {
		ask := reservation.Ask{Account: "acme", Amounts: quota.Amounts{quota.MeterTokens: 1}}
		if g := r.reserve(ask); !g.StartAt.IsZero() {
			t.Errorf("the first starts at %s", g.StartAt)
		}
		if no := r.refused(ask); no.Limit != "lane" || no.WaitBound.Limit != "org" {
			t.Errorf("the second is refused by %s, %+v", no.Limit, no.WaitBound)
		}
		envelope := func(parent string) reservation.Ask {
			own := ask
			own.Parent = parent
			return own
		}
		r.clock.Add(time.Second)
		parent := r.reserve(reservation.Ask{Account: "acme", Amounts: quota.Amounts{quota.MeterTokens: 100, quota.MeterRequests: 2}})
		if g := r.reserve(envelope(parent.Reservation)); !g.StartAt.IsZero() {
			t.Errorf("a call in an envelope starts at %s", g.StartAt)
		}
		if d, err := r.Charge(t.Context(), reservation.Spend{Account: "acme", Amounts: quota.Amounts{quota.MeterTokens: 1}}); err != nil || d.Grant == nil && d.Refusal.WaitBound.Limit != "" {
			t.Errorf("a charge: %+v, %v", d, err)
		}
	})
}

// The line for a slot is not bounded: its wait keeps nobody from a limit over time. The
// start is.
func TestTheLineForASlotIsNotBounded(t *testing.T) {
	onEngines(t, boundedWith("{meter: tokens, rate: 1000/s, max_wait: 0s}"), func(t *testing.T, one *rig) {
		r := &heldRig{one, make(chan outcome, 1)}
		job := boundedAsk("acme", "", 10, time.Minute)
		job.Labels["kind"] = "job"
		holder := r.reserve(job).Reservation
		r.wait(t.Context(), "next", job)
		if g := r.reserve(boundedAsk("globex", "", 900, 0)); !g.StartAt.IsZero() {
			t.Errorf("another account starts at %s while a call is in line", g.StartAt)
		}
		r.giveBack(holder)
		if o := r.next(); o.err != nil || o.Grant == nil || !o.Grant.StartAt.IsZero() {
			t.Errorf("the call in line came back with %+v, %v; want the slot, at once", o.Decision, o.err)
		}
		// A limit over time would start it later than the pool lets it: refused, not held.
		job.Labels["route"] = "slow"
		r.reserve(boundedAsk("acme", "slow", 1, 0))
		if no := r.refused(job); no.Limit != "jobs" || r.holding() != 0 {
			t.Errorf("refused by %s, want at once by the limit that takes longest", no.Limit)
		}
	})
}

// Who can't wait, by a limit's word, is asked for what it would take at once, as one who
// states no wait.
func TestWhoMayNotWaitTakesLess(t *testing.T) {
	for bound, want := range map[string]quota.Tokens{"0s": 2000, "1h": 0} {
		r := newRig(t, `
plans:
  p:
    limits:
      - {name: tokens, meter: tokens, rate: 1/s, burst: 3000, max_wait: `+bound+`}
accounts:
  acme: {plan: p}
`)
		wait := time.Hour
		ask := llmCall(4000, 100)
		ask.MaxWait = &wait
		d, err := r.Reserve(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case want > 0 && (d.Grant == nil || d.Grant.MaxOutput != want || !d.Grant.StartAt.IsZero()):
			t.Errorf("with %s: %+v, want %d tokens at once", bound, d, want)
		case want == 0 && (d.Refusal == nil || d.Refusal.Reason != reservation.ExceedsCapacity):
			t.Errorf("with %s: %+v, want a refusal of what is more than the limit ever holds", bound, d)
		}
	}
}
