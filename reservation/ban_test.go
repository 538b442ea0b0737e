package reservation_test

import (
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// A caller that hammers stays out: by a limit that counts refusals as long as it goes on,
// by a ban for a while. Each user has a counter of its own, and switching the limit into
// shadow or off lifts what it did.
func TestHammering(t *testing.T) {
	const policy = `
plans:
  pro:
    limits:
      - {name: logins, meter: requests, rate: 1/h, burst: 2, per: [user], match: {route: login}, ban: {refusals: 3, within: 1min, for: 10min}}
      - {name: exports, meter: requests, rate: 1/h, burst: 2, per: [user], match: {route: export}, count_refusals: true}
accounts:
  acme: {plan: pro}
`
	onBothKinds(t, policy, func(t *testing.T, r *rig) {
		ask := func(route, user string) reservation.Ask {
			return reservation.Ask{Account: "acme", Labels: map[string]string{"route": route, "user": user}}
		}
		for range 2 {
			r.reserve(ask("login", "eve"))
		}
		for range 2 {
			if no := r.refused(ask("login", "eve")); no.Reason != reservation.RateLimited {
				t.Fatalf("refused as %s", no.Reason)
			}
		}
		no := r.refused(ask("login", "eve"))
		// The bucket needs longer than the ban.
		if no.Reason != reservation.Banned || no.Ban.For != 10*time.Minute || no.RetryAfter() < 50*time.Minute || !no.Retryable() {
			t.Errorf("the third refusal: %+v", no)
		}
		status := r.overview(map[string]string{"route": "login", "user": "eve"})["logins"]
		left := status.Level.BannedUntil.Sub(no.Now)
		if status.Ban != (quota.Ban{Refusals: 3, Within: time.Minute, For: 10 * time.Minute}) || left < 9*time.Minute || left > 10*time.Minute {
			t.Errorf("the overview has ban %+v until %s", status.Ban, status.Level.BannedUntil)
		}
		if status := r.overview(map[string]string{"route": "login", "user": "bob"})["logins"]; !status.Level.BannedUntil.IsZero() {
			t.Error("bob is banned too")
		}
		r.reserve(ask("login", "bob"))

		r.reserve(ask("export", "eve"))
		slow := ask("export", "eve")
		slow.Amounts = quota.Amounts{quota.MeterRequests: 2}
		if no := r.refused(slow); no.Reason != reservation.RateLimited || no.Remaining != 0 || no.RetryAfter() < 119*time.Minute {
			t.Errorf("what a refusal took is not told: %+v", no)
		}
		if no := r.refused(ask("export", "eve")); no.Limit != "exports" {
			t.Errorf("refused by %s", no.Limit)
		}
		if !r.overview(map[string]string{"route": "export"})["exports"].CountRefusals {
			t.Error("the overview does not say that exports count refusals")
		}
	})
}
