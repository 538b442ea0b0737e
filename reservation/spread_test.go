package reservation_test

import (
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// A hundred callers that one window refused come back over a share of it, none
// before it allows. What gives its capacity back little by little is told as it is.
func TestRefusedCallersAreSpread(t *testing.T) {
	const callers = 100
	for _, c := range []struct {
		name, limit string
		most        time.Duration
	}{
		{"fixed", "{meter: requests, rate: 1/min, algorithm: fixed_window, name: l}", 6 * time.Second},
		{"counter", "{meter: requests, rate: 1/min, algorithm: sliding_window, name: l}", 6 * time.Second},
		{"log", "{meter: requests, rate: 1/min, algorithm: sliding_log, name: l}", 6 * time.Second},
		{"a long window", "{meter: requests, rate: 1/h, algorithm: fixed_window, name: l}", 30 * time.Second},
		{"a day", "{meter: requests, amount: 1, period: day, name: l}", 30 * time.Second},
		{"bucket", "{meter: requests, rate: 1/min, name: l}", 0},
		{"gcra", "{meter: requests, rate: 1/min, algorithm: gcra, name: l}", 0},
		{"slots", "{meter: in_flight, max: 1, name: l}", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind := "limits"
			if c.name == "a day" {
				kind = "quotas"
			}
			r := newRig(t, "plans: {p: {"+kind+": ["+c.limit+"]}}\naccounts: {acme: {plan: p}}\n")
			one := reservation.Ask{Account: "acme", Amounts: quota.Amounts{quota.MeterRequests: 1}}
			first := r.reserve(one)
			if c.name == "a day" { // used up, and not held
				r.refund(first.Reservation, reservation.Usage{Amounts: one.Amounts})
				r.settled()
			}
			exact := r.refused(one).RetryAt
			r.config.RetryJitter = 10
			r.start(r.ledger)
			var parts [5]int
			for range callers {
				no := r.refused(one)
				late := no.RetryAt.Sub(exact)
				if late < 0 || late > c.most || late != no.Spread {
					t.Fatalf("told to come %v after the limit allows, want 0 to %v", late, c.most)
				}
				if c.most > 0 {
					parts[min(late*5/c.most, 4)]++
				}
			}
			for i, n := range parts {
				if c.most > 0 && n == 0 {
					t.Errorf("none of %d comes in part %d of %v: %v", callers, i+1, c.most, parts)
				}
			}
		})
	}
}
