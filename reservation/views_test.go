package reservation_test

import (
	"testing"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

const viewedPolicy = `
plans:
  pro:
    limits:
      - {name: calls, meter: requests, rate: 10/min}
      - {name: user, meter: requests, rate: 3/min, per: [user], match: {user: ["*"]}}
    quotas:
      - {name: budget, meter: requests, amount: 100, period: month}
accounts:
  acme: {plan: pro}
`

// Views of a call that contradict each other are one step: all counters take
// what their view says, or none takes anything, and a counter that several
// views meet takes the largest amount once.
func TestViewsAreOneStep(t *testing.T) {
	onEngines(t, viewedPolicy, func(t *testing.T, r *rig) {
		view := func(user string, hits quota.Amount) reservation.View {
			return reservation.View{Labels: map[string]string{"user": user}, Amounts: quota.Amounts{quota.MeterRequests: hits}}
		}
		charge := func(key string, hits quota.Amount, views ...reservation.View) reservation.Decision {
			t.Helper()
			d, err := r.Charge(t.Context(), reservation.Spend{Account: "acme", Key: key, Amounts: quota.Amounts{quota.MeterRequests: hits}, Views: views})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		left := func(user string) (all, own quota.Amount) {
			t.Helper()
			seen := r.overview(map[string]string{"user": user})
			return seen["calls"].Level.Remaining, seen["user"].Level.Remaining
		}
		for range 2 { // the second is a replay
			if d := charge("k", 3, view("7", 3), view("8", 2)); d.Grant == nil {
				t.Fatalf("refused: %+v", d.Refusal)
			}
		}
		if d := charge("", 2, view("9", 2), view("7", 1)); d.Refusal == nil || d.Refusal.Limit != "user" || d.Refusal.Asked != 1 {
			t.Errorf("a view beyond its limit: %+v", d)
		}
		for user, want := range map[string]quota.Amount{"7": 0, "8": 1, "9": 3} {
			if all, own := left(user); all != 7 || own != want {
				t.Errorf("user %s: %d and %d are left, want 7 and %d", user, all, own, want)
			}
		}
		r.settled()
		if got := r.totals()[quota.MeterRequests]; got != 3 {
			t.Errorf("the ledger has %d requests, want 3", got)
		}
		r.balanced()
		for name, spend := range map[string]reservation.Spend{
			"more than the whole": {Views: []reservation.View{view("7", 4)}},
			"too many":            {Views: make([]reservation.View, reservation.MaxViews+1)},
			"a bad label":         {Views: []reservation.View{{Labels: map[string]string{"User": "7"}}}},
			"extra of the whole":  {Views: []reservation.View{view("7", 1)}, Extra: make([]quota.Applied, 1)},
		} {
			spend.Account, spend.Amounts = "acme", quota.Amounts{quota.MeterRequests: 3}
			if _, err := r.Charge(t.Context(), spend); !isInvalid(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
