package reservation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// llmCall asks for most output tokens, and takes no fewer than least.
func llmCall(most, least quota.Tokens) reservation.Ask {
	input := quota.Tokens(1000)
	return reservation.Ask{
		Account: "acme", Labels: map[string]string{"route": "chat"}, MinOutputTokens: &least,
		LLM: &estimator.Call{Provider: "openai", Model: "gpt-4o-mini", InputTokens: &input, MaxOutputTokens: &most},
	}
}

func usedOutput(n quota.Tokens) reservation.Usage {
	return reservation.Usage{Use: &estimator.Use{Tokens: estimator.TokenClasses{Input: 1000, Output: n}}}
}

// TestAffordableGrant: the largest output that fits every limit, in tokens and in
// money, is granted, and the reservation is of that output in every answer.
func TestAffordableGrant(t *testing.T) {
	r := newRig(t, `
plans:
  p:
    limits:
      - {name: tokens, meter: tokens, rate: 1/day, burst: 3000}
    quotas:
      - {name: spend, meter: cost, amount: $0.001, period: month}
accounts:
  acme: {plan: p}
`)
	ask := llmCall(4000, 100)
	ask.Key = "k"
	grant := r.reserve(ask)
	price := grant.Estimate.Price.RatesFor(1000)
	// What the quota leaves for output, by the price alone.
	input := int64(max(price.Input, price.CacheWrite)) * 1000
	afford := (1_000_000*1_000_000 - input) / int64(max(price.Output, price.Reasoning))
	if want := quota.Tokens(min(afford, 2000)); grant.MaxOutput != want || afford >= 2000 {
		t.Fatalf("granted %d output tokens, not %d of %d", grant.MaxOutput, want, afford)
	}
	if held := grant.Holds[0].Amount; held != 1000+grant.MaxOutput.Amount() {
		t.Errorf("%d tokens are held", held)
	}
	again := r.reserve(ask)
	if !again.Replayed || again.Reservation != grant.Reservation || again.MaxOutput != grant.MaxOutput || again.Holds[0].Amount != grant.Holds[0].Amount {
		t.Errorf("replayed %+v, not %+v", again, grant)
	}
	page, err := r.OpenReservations(context.Background(), "acme", "", 10)
	if err != nil || len(page.Reservations) != 1 || page.Reservations[0].Reservation != grant.Reservation {
		t.Errorf("open: %+v, %v", page, err)
	}
	// The next one has not even the least, and is told of that.
	if refusal := r.refused(llmCall(4000, 1500)); refusal.Limit != "tokens" && refusal.Limit != "spend" || refusal.Asked == 5000 {
		t.Errorf("refused %+v", refusal)
	}
	receipt := r.refund(grant.Reservation, usedOutput(50))
	if receipt.GivenBack[quota.MeterOutputTokens] != grant.MaxOutput.Amount()-50 || receipt.Charged[quota.MeterTokens] != 1050 {
		t.Errorf("receipt %+v", receipt)
	}
	r.settled()
	r.balanced()
	var invalid *reservation.InvalidError
	if _, err := r.Reserve(context.Background(), llmCall(100, 101)); !errors.As(err, &invalid) || invalid.Field != "llm.min_output_tokens" {
		t.Errorf("a least above the most: %v", err)
	}
}

const forecastPolicy = `
plans:
  p:
    limits:
      - {name: tokens, meter: tokens, rate: 1/day, burst: 1M, hold: forecast, tolerance: 8000}
accounts:
  acme: {plan: p}
`

// TestForecastHold: once calls were seen, a hold is what they used, as long as
// the tolerance has room; the caller may still use all that it asked for.
func TestForecastHold(t *testing.T) {
	r := newRig(t, forecastPolicy)
	r.sweep()
	for range 20 {
		grant := r.reserve(llmCall(4000, 4000))
		if n := grant.Holds[0].Amount; n != 5000 && n != 1200 {
			t.Fatalf("held %d", n)
		}
		r.refund(grant.Reservation, usedOutput(200))
	}
	var open []*reservation.Grant
	for i, want := range []quota.Amount{1200, 1200, 5000} { // 3,800 at risk each
		grant := r.reserve(llmCall(4000, 4000))
		if grant.Holds[0].Amount != want || grant.MaxOutput != 4000 {
			t.Fatalf("call %d holds %d for %d tokens, not %d", i, grant.Holds[0].Amount, grant.MaxOutput, want)
		}
		open = append(open, grant)
	}
	if risk := open[2].Holds[0].Level.Risk; risk != 7600 {
		t.Errorf("the open sum is %d", risk)
	}
	// The engine loses its data: the broker brings the holds back with their risk.
	before := r.overview(nil)["tokens"].Level
	r.engine.swap(r.newEngine())
	r.sweep()
	if after := r.overview(nil)["tokens"].Level; after.Risk != before.Risk || after.Risk != 7600 {
		t.Errorf("the open sum is %d, and was %d", after.Risk, before.Risk)
	}
	// All of them use their maximum: what was short by is debt within the tolerance.
	for _, grant := range open {
		if receipt := r.refund(grant.Reservation, usedOutput(4000)); receipt.Charged[quota.MeterTokens] != 5000 || len(receipt.Overrun) != 0 {
			t.Errorf("receipt %+v", receipt)
		}
	}
	if risk := r.overview(nil)["tokens"].Level.Risk; risk != 0 {
		t.Errorf("the open sum is %d when nothing is open", risk)
	}
	r.settled()
	r.balanced()
}

// TestForecastOfCrashedCaller: a hold by forecast ends with its lease, and the
// ledger hears of it.
func TestForecastOfCrashedCaller(t *testing.T) {
	r := newRig(t, forecastPolicy)
	for range 20 {
		r.refund(r.reserve(llmCall(4000, 4000)).Reservation, usedOutput(200))
	}
	grant := r.reserve(llmCall(4000, 4000))
	r.clock.Add(2 * time.Minute)
	if _, err := r.sweeper.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	if level := r.overview(nil)["tokens"].Level; level.Risk != 0 {
		t.Errorf("the open sum is %d after the lease", level.Risk)
	}
	if receipt := r.refund(grant.Reservation, usedOutput(200)); !receipt.Late || receipt.Charged[quota.MeterTokens] != 1200 {
		t.Errorf("receipt %+v", receipt)
	}
	r.settled()
	r.balanced()
}
