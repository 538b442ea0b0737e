package reservation_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

const verdictPolicy = `
plans:
  agents:
    limits:
      - {name: tokens, meter: tokens, rate: 1/day, burst: 10000}
      - {name: watched, meter: tokens, rate: 1/day, burst: 100, mode: shadow}
    quotas:
      - {name: monthly, meter: tokens, amount: 12000, period: month}
accounts:
  acme: {plan: agents}
`

// renew tells what was used so far, and wants a verdict.
func (r *rig) renew(id string, used quota.Amount, want reservation.Verdict, remaining quota.Amount) reservation.Renewed {
	r.tb.Helper()
	usage := reservation.Usage{Amounts: quota.Amounts{quota.MeterTokens: used}}
	got, err := r.Renew(context.Background(), id, reservation.Renewal{Usage: &usage})
	if err != nil {
		r.tb.Fatalf("Renew: %v", err)
	}
	if got.Verdict != want || got.Remaining[quota.MeterTokens] != remaining {
		r.tb.Errorf("%d used: verdict %d, %v remain, want %d and %d", used, got.Verdict, got.Remaining, want, remaining)
	}
	if (got.Tightest == nil) != (want == reservation.GoOn) {
		r.tb.Errorf("%d used: verdict %d because of %+v", used, got.Verdict, got.Tightest)
	}
	return got
}

// A call may use its hold and what the tightest limit has left beyond it.
func TestVerdictOfACall(t *testing.T) {
	onBothKinds(t, verdictPolicy, func(t *testing.T, r *rig) {
		tokens := func(n quota.Amount) reservation.Ask {
			return reservation.Ask{Account: "acme", Amounts: quota.Amounts{quota.MeterTokens: n}}
		}
		call := r.reserve(tokens(1000)).Reservation
		r.renew(call, 0, reservation.GoOn, 10000)
		r.renew(call, 1500, reservation.GoOn, 8500) // beyond its hold
		others := r.reserve(tokens(8500)).Reservation
		// 500 of the bucket are left, and 1000 were held.
		got := r.renew(call, 1200, reservation.Stop, 0)
		if got.Tightest.Limit != "tokens" || got.Tightest.Reason != reservation.LimitUsed || got.Tightest.Meter != quota.MeterTokens {
			t.Errorf("the tightest is %+v, want the limit tokens", got.Tightest)
		}
		r.refund(others, reservation.Usage{Unused: true})
		r.renew(call, 1200, reservation.GoOn, 8500) // 1500 was told: it does not fall
		r.renew(call, 7999, reservation.GoOn, 2001)
		r.renew(call, 8000, reservation.WindDown, 2000)
		r.renew(call, 9999, reservation.WindDown, 1)
		r.renew(call, 10000, reservation.Stop, 0)
		// A limit that was switched off binds no more: the quota has 12,000. The present policy counts.
		r.setPolicy(strings.Replace(verdictPolicy, "burst: 10000}", "burst: 10000, mode: off}", 1))
		r.renew(call, 9000, reservation.WindDown, 2000)
		// So does a limit that was lowered: by what it is now.
		r.setPolicy(strings.Replace(verdictPolicy, "amount: 12000", "amount: 5000", 1))
		r.renew(call, 9000, reservation.Stop, 0)
		// The lease ends: what was told is charged, though the limits give back.
		r.clock.Add(2 * time.Minute)
		r.settled()
		r.balanced()
		if total := r.totals()[quota.MeterTokens]; total != 10000 {
			t.Errorf("%d tokens were charged, want the 10,000 that were told", total)
		}
		if level := r.overview(nil)["tokens"].Level.Remaining; level != 0 {
			t.Errorf("%d tokens remain, want none", level)
		}
		r.refund(call, used(300))
		r.settled()
		r.balanced()
		if total := r.totals()[quota.MeterTokens]; total != 300 {
			t.Errorf("%d tokens were charged after the late Refund, want 300", total)
		}
	})
}

// An envelope may use what it was granted, and a call in it what the envelope has left.
func TestVerdictInAnEnvelope(t *testing.T) {
	onBothKinds(t, verdictPolicy, func(t *testing.T, r *rig) {
		ask := func(n quota.Amount, parent string) reservation.Ask {
			return reservation.Ask{Account: "acme", Amounts: quota.Amounts{quota.MeterTokens: n}, Parent: parent}
		}
		envelope := r.reserve(ask(5000, "")).Reservation
		a := r.reserve(ask(3000, envelope)).Reservation
		r.renew(envelope, 0, reservation.GoOn, 2000) // 3000 of 5000 are out
		r.renew(a, 3000, reservation.GoOn, 2000)
		got := r.renew(a, 4000, reservation.WindDown, 1000)
		if got.Tightest.Reason != reservation.EnvelopeUsed {
			t.Errorf("the tightest is %+v, want the envelope", got.Tightest)
		}
		b := r.reserve(ask(2000, envelope)).Reservation
		r.renew(a, 4000, reservation.Stop, 0)
		r.renew(b, 100, reservation.GoOn, 1900)
		// Its calls hold all that it has, and may give some back.
		r.renew(envelope, 0, reservation.WindDown, 0)
		r.refund(a, used(3000))
		r.renew(envelope, 0, reservation.WindDown, 0)
		r.refund(b, used(500))
		r.renew(envelope, 0, reservation.GoOn, 1500)
		r.renew(envelope, 500, reservation.WindDown, 1000)
		got = r.renew(envelope, 1500, reservation.Stop, 0)
		if got.Tightest.Reason != reservation.EnvelopeUsed {
			t.Errorf("the tightest is %+v, want the envelope", got.Tightest)
		}
		r.refund(envelope, reservation.Usage{Amounts: quota.Amounts{quota.MeterTokens: 1500}})
		r.settled()
		r.balanced()
		if total := r.totals()[quota.MeterTokens]; total != 5000 {
			t.Errorf("%d tokens were charged, want 3000 + 500 + 1500", total)
		}
	})
}

// Requests and the input of a model call are whole from the start: they end nothing.
func TestVerdictCountsWhatGrows(t *testing.T) {
	onBothKinds(t, `
plans:
  one:
    limits:
      - {name: requests, meter: requests, rate: 1/day, burst: 1}
      - {name: tokens, meter: tokens, rate: 1/day, burst: 100}
accounts:
  acme: {plan: one}
`, func(t *testing.T, r *rig) {
		g := r.reserve(reservation.Ask{Account: "acme", Amounts: quota.Amounts{quota.MeterTokens: 10}})
		usage := reservation.Usage{Amounts: quota.Amounts{quota.MeterTokens: 9, quota.MeterRequests: 1}}
		got, err := r.Renew(context.Background(), g.Reservation, reservation.Renewal{Usage: &usage})
		if err != nil || got.Verdict != reservation.GoOn || len(got.Remaining) != 1 {
			t.Errorf("Renew: %+v, %v; want to go on, and tokens alone", got, err)
		}
		// Nobody asked for a verdict.
		if got, err := r.Renew(context.Background(), g.Reservation, reservation.Renewal{}); err != nil || got.Verdict != reservation.NoVerdict || got.Remaining != nil {
			t.Errorf("Renew without a usage: %+v, %v", got, err)
		}
		for _, bad := range []struct {
			usage reservation.Usage
			field string
		}{
			{reservation.Usage{Unused: true}, "usage.unused"},
			{reservation.Usage{Amounts: quota.Amounts{quota.MeterTokens: -1}}, "usage"},
			{reservation.Usage{Amounts: quota.Amounts{quota.MeterInFlight: 1}}, `usage.amounts["in_flight"]`},
			{reservation.Usage{SeenText: "text"}, "usage.seen_text"},
		} {
			_, err := r.Renew(context.Background(), g.Reservation, reservation.Renewal{Usage: &bad.usage})
			var invalid *reservation.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != bad.field {
				t.Errorf("usage %+v: %v, want %s refused", bad.usage, err, bad.field)
			}
		}
		// The account is gone.
		r.setPolicy("plans:\n  one: {limits: [{name: tokens, meter: tokens, rate: 1/day}]}\naccounts:\n  other: {plan: one}\n")
		got, err = r.Renew(context.Background(), g.Reservation, reservation.Renewal{Usage: &usage})
		if err != nil || got.Verdict != reservation.Stop || got.Tightest.Reason != reservation.AccountRemoved {
			t.Errorf("Renew of an account that was removed: %+v, %v", got, err)
		}
	})
}
