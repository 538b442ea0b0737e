package reservation_test

import (
	"testing"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Shadow limits say what they would have refused, in the answer, in a replay and
// in the story, and are charged nothing of it, whatever becomes of the
// reservation.
func TestShadowLimits(t *testing.T) {
	r := newRig(t, `
plans:
  pro:
    limits:
      - {name: real, meter: tokens, rate: 1/day, burst: 100000}
      - {name: trial, meter: tokens, rate: 1/day, burst: 5000, mode: shadow}
      - {name: none, meter: tokens, rate: 1/day, burst: 1, mode: off}
    quotas:
      - {name: month, meter: tokens, amount: 6000, period: month, mode: shadow}
accounts: {acme: {plan: pro}}
`)
	ask := func(key string, tokens quota.Amount) reservation.Ask {
		return reservation.Ask{Account: "acme", Key: key, Amounts: quota.Amounts{quota.MeterTokens: tokens}}
	}
	first := r.reserve(ask("", 4000))
	if len(first.Shadow) != 0 || len(first.Holds) != 3 {
		t.Fatalf("the first call: %+v", first)
	}
	second := r.reserve(ask("k", 4000))
	if len(second.Shadow) != 2 || len(second.Holds) != 1 {
		t.Fatalf("the second call: %+v", second)
	}
	trial, month := second.Shadow[0], second.Shadow[1]
	if trial.Limit != "trial" || trial.Reason != reservation.RateLimited || trial.Asked != 4000 || trial.Remaining != 1000 || !trial.RetryAt.After(trial.Now) {
		t.Errorf("trial: %+v", trial)
	}
	// 2000 are left and 4000 held: it would fit if nothing were held.
	if month.Limit != "month" || month.Reason != reservation.QuotaHeld || month.Asked != 4000 || month.Remaining != 2000 {
		t.Errorf("month: %+v", month)
	}
	again := r.reserve(ask("k", 4000))
	if !again.Replayed || again.Reservation != second.Reservation || len(again.Shadow) != 2 || again.Shadow[0].Asked != 4000 {
		t.Errorf("the replay: %+v", again)
	}
	charged, err := r.Charge(t.Context(), reservation.Spend{Account: "acme", Amounts: quota.Amounts{quota.MeterTokens: 3000}})
	if err != nil || charged.Grant == nil || len(charged.Grant.Shadow) != 2 {
		t.Fatalf("a charge: %+v, %v", charged, err)
	}
	r.refund(second.Reservation, used(3500))
	r.refund(first.Reservation, used(1000))
	r.settled()
	story, err := r.Reservation(t.Context(), second.Reservation)
	if err != nil || len(story.Shadow) != 2 || story.Shadow[1].Limit != "month" || story.Shadow[1].Reason != reservation.QuotaExhausted {
		t.Errorf("the story: %+v, %v", story.Shadow, err)
	}
	view, err := r.Overview(t.Context(), "acme", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range view.Limits {
		want := map[string]quota.Amount{"real": 100_000 - 7500, "trial": 4000, "none": 1, "month": 5000}[limit.Limit]
		if limit.Level.Remaining != want {
			t.Errorf("limit %s has %d left, want %d", limit.Limit, limit.Level.Remaining, want)
		}
		if limit.Limit == "month" && limit.Posted != 1000 {
			t.Errorf("the ledger has %d of the shadow quota, want 1000", limit.Posted)
		}
	}
	if got := r.totals()[quota.MeterTokens]; got != 7500 {
		t.Errorf("the ledger has %d tokens in all, want 7500", got)
	}
	r.balanced()
}

// What a shadow limit can't be asked does not stand in a call's way.
func TestShadowLimitsWhenPartsAreAway(t *testing.T) {
	r := newRig(t, `
plans:
  pro:
    limits:
      - {name: real, meter: tokens, rate: 1/day, burst: 100000, when_down: open}
    quotas:
      - {name: month, meter: tokens, amount: 6000, period: month, mode: shadow}
accounts: {acme: {plan: pro}}
`)
	r.ledger.silent.Store(true)
	g := r.reserve(reservation.Ask{Account: "acme", Amounts: quota.Amounts{quota.MeterTokens: 10}})
	if g.Degraded || len(g.Shadow) != 0 || len(g.Holds) != 1 {
		t.Errorf("while the ledger is away: %+v", g)
	}
	r.ledger.silent.Store(false)
	r.refund(g.Reservation, used(10))
	r.engine.silent.Store(true)
	g = r.reserve(reservation.Ask{Account: "acme", Amounts: quota.Amounts{quota.MeterTokens: 10}})
	if !g.Degraded {
		t.Errorf("while the engine is away: %+v", g)
	}
	r.engine.silent.Store(false)
}
