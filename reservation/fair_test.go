package reservation_test

import (
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Whoever is ahead of its share of a pool is told how many use it, in the refusal and in
// the overview, and what is kept is for the others.
func TestFairShare(t *testing.T) {
	const policy = `
pools:
  org: {meter: tokens, rate: 1000/1000s, burst: 1000, fair: true}
plans:
  small: {limits: []}
accounts:
  acme: {plan: small}
  demo: {plan: small}
`
	onEngines(t, policy, func(t *testing.T, r *rig) {
		ask := func(account string, tokens quota.Amount) reservation.Ask {
			return reservation.Ask{Account: account, Amounts: quota.Amounts{quota.MeterTokens: tokens}}
		}
		r.reserve(ask("demo", 50))
		r.reserve(ask("acme", 650))
		no := r.refused(ask("acme", 100))
		// 300 are left: with the 250 that are kept it takes 50 s until 100 may go.
		if no.Reason != reservation.RateLimited || no.Sharing != 2 || no.Remaining != 300 || no.RetryAfter() != 50*time.Second {
			t.Errorf("who is ahead of its share is refused as %+v", no)
		}
		ahead := r.overview(nil)["org"]
		// Twice 650 s, as two use it, less the 125 s by which an account may be ahead.
		if wait := ahead.Level.ShareAt.Sub(no.Now); !ahead.Fair || ahead.Level.Sharing != 2 || wait != 1175*time.Second {
			t.Errorf("the overview has fair %v, %d accounts, a share again after %s", ahead.Fair, ahead.Level.Sharing, wait)
		}
		r.reserve(ask("demo", 20))
		if no := r.refused(ask("demo", 300)); no.Sharing != 0 {
			t.Errorf("an empty limit refuses as unfair: %+v", no)
		}
		r.clock.Add(50 * time.Second)
		r.reserve(ask("acme", 50))
	})
}
