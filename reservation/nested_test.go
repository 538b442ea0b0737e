package reservation_test

import (
	"maps"
	"testing"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Quotas of the account, its teams, their users and keys, at once: a call takes
// of all of them or of none, and the refusal names the one that is spent.
func TestNestedScopes(t *testing.T) {
	onBothKinds(t, `
plans:
  nested:
    quotas:
      - {name: account, meter: tokens, amount: 1000, period: month}
      - {name: team, meter: tokens, amount: 500, period: month, per: [team]}
      - {name: user, meter: tokens, amount: 200, period: month, per: [team, user]}
      - {name: key, meter: tokens, amount: 150, period: month, per: [key]}
accounts:
  acme: {plan: nested}
`, func(t *testing.T, r *rig) {
		who := func(team, user, key string) map[string]string {
			return map[string]string{"team": team, "user": user, "key": key}
		}
		ask := func(labels map[string]string, tokens quota.Amount) reservation.Ask {
			return reservation.Ask{Account: "acme", Labels: labels, Amounts: quota.Amounts{quota.MeterTokens: tokens}}
		}
		spend := func(labels map[string]string, tokens quota.Amount) {
			t.Helper()
			g := r.reserve(ask(labels, tokens))
			r.refund(g.Reservation, reservation.Usage{Amounts: quota.Amounts{quota.MeterTokens: tokens}})
		}
		remaining := func(labels map[string]string) map[string]quota.Amount {
			t.Helper()
			left := map[string]quota.Amount{}
			for name, limit := range r.overview(labels) {
				left[name] = limit.Max - limit.Level.Used - limit.Level.Held - limit.Level.Unposted
			}
			return left
		}
		want := func(labels map[string]string, account, team, user, key quota.Amount) {
			t.Helper()
			wanted := map[string]quota.Amount{"account": account, "team": team, "user": user, "key": key}
			if got := remaining(labels); !maps.Equal(got, wanted) {
				t.Errorf("%v: remaining %v, want %v", labels, got, wanted)
			}
		}
		refuses := func(labels map[string]string, tokens quota.Amount, limit, scope string, left quota.Amount) {
			t.Helper()
			if no := r.refused(ask(labels, tokens)); no.Limit != limit || no.Scope != scope || no.Remaining != left {
				t.Errorf("%v: refused by %s of %q with %d left, want %s of %q with %d", labels, no.Limit, no.Scope, no.Remaining, limit, scope, left)
			}
		}
		ann1, ann2 := who("red", "ann", "k1"), who("red", "ann", "k2")
		spend(ann1, 120)
		want(ann1, 880, 380, 80, 30)
		refuses(ann1, 31, "key", "key=k1", 30)
		want(ann1, 880, 380, 80, 30) // nothing was taken of the others
		// Another key of hers, and the user's quota is next.
		refuses(ann2, 81, "user", "team=red,user=ann", 80)
		spend(ann2, 80)
		// She is another user in another team, whatever the key.
		spend(who("blue", "ann", "k2"), 70)
		want(who("blue", "ann", "k2"), 730, 430, 130, 0)
		spend(who("red", "bob", "k3"), 150)
		spend(who("red", "cy", "k4"), 150)
		want(who("red", "dee", "k5"), 430, 0, 200, 150)
		refuses(who("red", "dee", "k5"), 1, "team", "team=red", 0)
		for _, key := range []string{"k6", "k7"} {
			spend(who("blue", "eve"+key, key), 150)
		}
		spend(who("green", "fay", "k8"), 130)
		want(who("green", "gus", "k9"), 0, 370, 200, 150)
		refuses(who("green", "gus", "k9"), 1, "account", "", 0)
		r.settled()
		r.balanced()
	})
}
