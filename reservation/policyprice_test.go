package reservation_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// A reservation pins the policy's price of the instant at which it was made, by
// the engine's clock; its Refund is priced with it, whatever holds then.
func TestPolicyPriceOfTheInstant(t *testing.T) {
	r := newRig(t, pricedPolicy)
	start := r.clock.Now()
	change := start.Add(time.Hour)
	dearer := func(input string) {
		r.setPolicy(fmt.Sprintf(`%s
prices:
  openai/our-model:
    - {from: %s, input: %s, output: $2}
    - {from: %s, input: $3, output: $6}
`, pricedPolicy, start.Format(time.RFC3339Nano), input, change.Format(time.RFC3339Nano)))
	}
	dearer("$1")
	follow, err := estimator.New(estimator.Config{Policy: r.policy.Current})
	if err != nil {
		t.Fatal(err)
	}
	r.Broker.Estimator = follow
	version := func(from time.Time) string {
		return "policy:openai/our-model@" + from.UTC().Format(time.RFC3339Nano)
	}
	ours := call("openai/our-model", nil) // 1,000 in, 1,000 out

	first := r.reserve(ours)
	if first.PriceVersion != version(start) || first.Estimate.Cost != 3_000_000 {
		t.Errorf("at first: version %s, cost %d", first.PriceVersion, first.Estimate.Cost)
	}
	// A broker whose clock is behind is told the time by the engine, and prices
	// again: what it asked for at first would not have done.
	r.clock.Add(time.Hour)
	behind := reservation.NewBroker(r.Broker.Parts, reservation.Config{
		Now: func() time.Time { return r.clock.Now().Add(-time.Minute) }, Deadline: 5 * time.Second, Logger: r.log(),
	})
	defer behind.Close(context.Background())
	d, err := behind.Reserve(context.Background(), ours)
	if err != nil || d.Grant == nil || d.Grant.PriceVersion != version(change) || d.Grant.Estimate.Cost != 9_000_000 || d.Grant.Holds[0].Amount != 9_000_000 {
		t.Fatalf("by a slow clock: %+v, %v", d.Grant, err)
	}
	late := reservation.NewBroker(r.Broker.Parts, reservation.Config{
		Now: func() time.Time { return r.clock.Now().Add(-time.Minute) }, Deadline: 5 * time.Second, Logger: r.log(),
	})
	defer late.Close(context.Background())
	charged, err := late.Charge(context.Background(), reservation.Spend{
		Account: "acme", Model: "openai/our-model", Use: &estimator.Use{Tokens: estimator.TokenClasses{Input: 1000}},
	})
	if err != nil || charged.Grant == nil || charged.Grant.PriceVersion != version(change) || charged.Grant.Charged[quota.MeterCost] != 3_000_000 {
		t.Fatalf("a charge by a slow clock: %+v, %v", charged.Grant, err)
	}
	r.refund(first.Reservation, classes(1000, 1000))          // $1 and $2 a million
	r.refund(d.Grant.Reservation, classes(1000, 1000))        // $3 and $6
	r.refund(r.reserve(ours).Reservation, classes(1000, 500)) // $3 and $6
	month := "m" + start.In(tokyo).Format("2006-01") + "-01"
	r.wantUsage(map[string]quota.Amount{"//cost/" + month: 3_000_000 + 3_000_000 + 9_000_000 + 6_000_000})

	// The first price was misread: only what was made under it changes.
	dearer("$0.50")
	done := r.correct(reservation.PriceCorrection{
		Model: "openai/our-model", From: start, To: r.clock.Now().Add(time.Second), Reason: "misread", By: "ops",
	})
	if done.Looked != 4 || done.Repriced != 1 || done.Difference != -500_000 {
		t.Errorf("corrected: %+v", done)
	}
	r.settled()
	r.balanced()
}

// A model that only the policy prices is known from the price's instant on, and
// its labels are the policy's names.
func TestAModelThatOnlyThePolicyKnows(t *testing.T) {
	r := newRig(t, pricedPolicy)
	r.setPolicy(pricedPolicy + `
prices:
  in-house/llama-x: [{from: 2020-01-01, input: $1, output: $2}]
`)
	follow, err := estimator.New(estimator.Config{Policy: r.policy.Current})
	if err != nil {
		t.Fatal(err)
	}
	r.Broker.Estimator = follow
	g := r.reserve(call("in-house/llama-x", nil))
	r.refund(g.Reservation, classes(10, 10))
	if _, err := r.Charge(context.Background(), reservation.Spend{Account: "acme", Provider: "In-House", Model: "LLAMA-X", Use: &estimator.Use{Tokens: estimator.TokenClasses{Output: 5}}}); err != nil {
		t.Fatal(err)
	}
	day := "d" + r.clock.Now().In(tokyo).Format(time.DateOnly)
	r.wantUsage(map[string]quota.Amount{"by-model/model=llama-x/cost/" + day: 30_000 + 10_000})
}
