package reservation_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

const adjustedPolicy = `
plans:
  pro:
    limits:
      - {name: rate, meter: tokens, rate: 1000000/min}
    quotas:
      - {name: budget, meter: tokens, amount: 1000, period: month}
      - {name: team-spend, meter: cost, amount: $5, period: day, per: [team]}
accounts:
  acme: {plan: pro, time_zone: Asia/Tokyo}
pools:
  shared: {meter: tokens, rate: 1000000/min}
`

func credit(amount quota.Amount, key string) reservation.AdjustRequest {
	return reservation.AdjustRequest{Account: "acme", Limit: "budget", Amount: amount, Reason: "an outage", By: "ops@example.com", Key: key}
}

func (r *rig) adjust(a reservation.AdjustRequest) reservation.Adjusted {
	r.tb.Helper()
	done, err := r.Adjust(context.Background(), a)
	if err != nil {
		r.tb.Fatalf("Adjust: %v", err)
	}
	return done
}

func TestACreditOpensAQuota(t *testing.T) {
	onBothKinds(t, adjustedPolicy, func(t *testing.T, r *rig) {
		observer := &heard{}
		r.Broker.Observer = observer
		g := r.reserve(tokens(1000))
		r.refund(g.Reservation, used(1000))
		r.settledWithin(0) // until it is confirmed the engine counts it beside the row
		if no := r.refused(tokens(300)); no.Limit != "budget" {
			t.Errorf("refused by %s", no.Limit)
		}
		done := r.adjust(credit(-400, "a"))
		if done.Usage.Used != 600 || done.Replayed {
			t.Errorf("adjusted: %+v", done)
		}
		if got := r.reserve(tokens(300)).Holds[1].Level; got.Used != 600 || got.Remaining != 100 {
			t.Errorf("after a credit of 400: %+v", got)
		}
		// The same again, though time and with it the period have moved on.
		r.clock.Add(40 * 24 * time.Hour)
		if again := r.adjust(credit(-400, "a")); !again.Replayed || again.ID != done.ID || again.Usage != done.Usage {
			t.Errorf("again: %+v, first %+v", again, done)
		}
		if _, err := r.Adjust(context.Background(), credit(-401, "a")); !errors.Is(err, reservation.ErrKeyReused) {
			t.Errorf("another amount: error %v, want ErrKeyReused", err)
		}
		// What is below zero is a balance to be used up.
		if done := r.adjust(credit(-500, "b")); done.Usage.Used != -500 || done.Usage.Version != 1 {
			t.Errorf("a credit in a new period: %+v", done)
		}
		r.settled()
		r.reserve(tokens(1500))
		r.refused(tokens(1))
		observer.mu.Lock()
		defer observer.mu.Unlock()
		for _, used := range []quota.Amount{600, -500} { // beside what closings changed
			if !slices.ContainsFunc(observer.rows, func(u ledger.Usage) bool { return u.Used == used }) {
				t.Errorf("the observer did not hear of %d used: %+v", used, observer.rows)
			}
		}
	})
}

func TestAdjustedRows(t *testing.T) {
	r := newRig(t, adjustedPolicy)
	period := r.clock.Now().In(tokyo).Format("2006-01") + "-01"
	team := reservation.AdjustRequest{
		Account: "acme", Limit: "team-spend", Meter: quota.MeterCost, Scope: "team=a%2Cb", Period: "d2020-02-29",
		Amount: 5, Reason: "x", By: "ops", Key: "team",
	}
	totals := reservation.AdjustRequest{Account: "acme", Meter: "pages", Amount: 7, Reason: "x", By: "ops", Key: "totals"}
	old := totals
	old.Key, old.Period = "old", "m2020-02-01"
	for _, a := range []reservation.AdjustRequest{team, totals, old} {
		r.adjust(a)
	}
	r.wantUsage(map[string]quota.Amount{
		"team-spend/team=a%2Cb/cost/d2020-02-29": 5,
		"//pages/m" + period:                     7,
		"//pages/m2020-02-01":                    7,
	})
	if got := r.totals()["pages"]; got != 7 {
		t.Errorf("totals show %d pages, want 7", got)
	}
	r.balanced()
	found, err := r.ledger.Adjustments(context.Background(), "acme", nil, 10)
	if err != nil || len(found) != 3 || found[0].By != "ops" {
		t.Errorf("adjustments: %+v, %v", found, err)
	}

	long := strings.Repeat("x", 2000)
	for what, c := range map[string]struct {
		field string
		fault func(*reservation.AdjustRequest)
	}{
		"no key":             {"idempotency_key", func(a *reservation.AdjustRequest) { a.Key = "" }},
		"a long key":         {"idempotency_key", func(a *reservation.AdjustRequest) { a.Key = long }},
		"no reason":          {"reason", func(a *reservation.AdjustRequest) { a.Reason = "" }},
		"a long reason":      {"reason", func(a *reservation.AdjustRequest) { a.Reason = long }},
		"a broken author":    {"by", func(a *reservation.AdjustRequest) { a.By = "a\x00" }},
		"nothing":            {"amount", func(a *reservation.AdjustRequest) { a.Amount = 0 }},
		"too much":           {"amount", func(a *reservation.AdjustRequest) { a.Amount = -quota.MaxAmount - 1 }},
		"a bucket":           {"limit", func(a *reservation.AdjustRequest) { a.Limit = "rate" }},
		"another meter":      {"meter", func(a *reservation.AdjustRequest) { a.Meter = quota.MeterTokens }},
		"no scope":           {"scope", func(a *reservation.AdjustRequest) { a.Scope = "" }},
		"another scope":      {"scope", func(a *reservation.AdjustRequest) { a.Scope = "model=a" }},
		"a long scope":       {"scope", func(a *reservation.AdjustRequest) { a.Scope = "team=" + long }},
		"another period":     {"period", func(a *reservation.AdjustRequest) { a.Period = "m2020-02-01" }},
		"no period at all":   {"period", func(a *reservation.AdjustRequest) { a.Period = "2020" }},
		"an impossible date": {"period", func(a *reservation.AdjustRequest) { a.Period = "d2021-02-29" }},
		"a scope of totals":  {"scope", func(a *reservation.AdjustRequest) { a.Limit = "" }},
		"totals of nothing":  {"meter", func(a *reservation.AdjustRequest) { a.Limit, a.Scope, a.Meter = "", "", "" }},
		"totals of slots":    {"meter", func(a *reservation.AdjustRequest) { a.Limit, a.Scope, a.Meter = "", "", quota.MeterInFlight }},
		"totals of no meter": {"meter", func(a *reservation.AdjustRequest) { a.Limit, a.Scope, a.Meter = "", "", "NOT A METER" }},
	} {
		a := team
		a.Key = "faulty"
		c.fault(&a)
		var invalid *reservation.InvalidError
		if _, err := r.Adjust(context.Background(), a); !errors.As(err, &invalid) || invalid.Field != c.field || len(err.Error()) > 400 {
			t.Errorf("%s: error %v, want one of %s", what, err, c.field)
		}
	}
	for what, fault := range map[string]func(*reservation.AdjustRequest){
		"an unknown account": func(a *reservation.AdjustRequest) { a.Account = "nobody" },
		"an unknown limit":   func(a *reservation.AdjustRequest) { a.Limit = "no-such" },
		"a pool":             func(a *reservation.AdjustRequest) { a.Limit = "shared" },
	} {
		a := team
		fault(&a)
		if _, err := r.Adjust(context.Background(), a); !errors.Is(err, reservation.ErrNotFound) {
			t.Errorf("%s: error %v, want ErrNotFound", what, err)
		}
	}
	if found, err := r.ledger.Adjustments(context.Background(), "acme", nil, 10); err != nil || len(found) != 3 {
		t.Errorf("after what was refused there are %d adjustments, %v", len(found), err)
	}
}
