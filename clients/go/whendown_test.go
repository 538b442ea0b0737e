package budget_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
)

// Each call follows its own rule when no broker answers; a refusal never does.
func TestWhenDown(t *testing.T) {
	c, b := start(t)
	g := newGate(t, b.URL)
	client, err := budget.New(g.URL, c.Key(), budget.WithWhenDown(budget.Open()), budget.WithMaxWait(0))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	var refused *budget.RefusedError
	if _, err := client.Reserve(ctx, budget.Request{Amounts: map[string]int64{"tokens": 1001}}); !errors.As(err, &refused) || refused.Refusal.Limit != "tokens" {
		t.Errorf("a refusal with the rule open: %v", err)
	}
	if _, err := client.Reserve(ctx, budget.Request{Account: "somebody-else"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("another's account with the rule open: %v", err)
	}
	g.does.Store(turnsAway)

	ran := false
	if err := client.Do(ctx, hundred, func(_ context.Context, r *budget.Reservation) (budget.Usage, error) {
		ran = r.Degraded && r.ID == ""
		return budget.Amounts(map[string]int64{"tokens": 30}), nil
	}); err != nil || !ran {
		t.Errorf("the client's rule, open: ran without a reservation %v, %v", ran, err)
	}
	closed := hundred
	closed.WhenDown = budget.Closed()
	if _, err := client.Reserve(ctx, closed); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("the request's own rule, closed: %v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := client.Reserve(gone, hundred); connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("a caller that has gone: %v", err)
	}

	local := hundred
	if local.WhenDown, err = budget.Local(0.01, 2); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if r, err := client.Reserve(ctx, local); err != nil || !r.Degraded {
			t.Errorf("call %d of a local bucket of 2: %v", i+1, err)
		}
	}
	_, err = client.Reserve(ctx, local)
	if !errors.As(err, &refused) || !refused.Retryable() || refused.Refusal.Limit != budget.LocalLimit || refused.RetryAfter < 99*time.Second || refused.RetryAfter > 100*time.Second {
		t.Errorf("the third: %v, want a refusal for 100 s", err)
	}
	local.Amounts = map[string]int64{"requests": 3}
	if _, err = client.Reserve(ctx, local); !errors.As(err, &refused) || refused.Retryable() || !refused.NeverFits() {
		t.Errorf("three at once of a local bucket of 2: %v", err)
	}

	g.does.Store(passes)
	if got := left(t, c); got != 1000 {
		t.Errorf("%d tokens left, want 1000: nothing was reserved", got)
	}
	waitFor(t, "a reservation by the broker that is back", func() bool {
		r, err := client.Reserve(ctx, hundred)
		return err == nil && r.ID != ""
	})
}

func TestLocalRefusesWhatCannotWork(t *testing.T) {
	for _, perSecond := range []float64{0, -1, 1 / zero, zero / zero} {
		if _, err := budget.Local(perSecond, 1); err == nil {
			t.Errorf("%v a second is accepted", perSecond)
		}
	}
	if _, err := budget.Local(1, 0); err == nil {
		t.Error("a burst of 0 is accepted")
	}
}

var zero = 0.0

// A broker that says nothing costs its deadline a few times, and then no more
// than one call a second.
func TestDeadBrokerDoesNotCostADeadlineEachCall(t *testing.T) {
	c, b := start(t)
	g := newGate(t, b.URL)
	g.does.Store(hangs)
	client, err := budget.New(g.URL, c.Key(), budget.WithWhenDown(budget.Open()), budget.WithDeadline(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for range 200 {
		if r, err := client.Reserve(context.Background(), hundred); err != nil || !r.Degraded {
			t.Fatalf("%v", err)
		}
	}
	// One more may give back, when the fifth fails, what another may hold.
	if seen, most := int(g.seen.Load()), 5+1+int(time.Since(begun)/time.Second); seen < 5 || seen > most {
		t.Errorf("200 calls in %v reached the dead broker %d times, want 5 to %d", time.Since(begun), seen, most)
	}
}

// The next broker is asked with the same idempotency key: what the first took
// before its answer was lost is not taken twice.
func TestNextBroker(t *testing.T) {
	c, b := start(t)
	first, second := newGate(t, b.URL), newGate(t, b.URL)
	client, err := budget.New(first.URL, c.Key(), budget.WithAddresses(second.URL), budget.WithDeadline(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	first.does.Store(loses)
	r, err := client.Reserve(ctx, hundred)
	if err != nil {
		t.Fatal(err)
	}
	if got := left(t, c); got != 900 {
		t.Errorf("%d left, want 900: both brokers were asked for one reservation", got)
	}
	if first.seen.Load() != 1 || second.seen.Load() != 1 {
		t.Errorf("the brokers were asked %d and %d times, want once each", first.seen.Load(), second.seen.Load())
	}
	if _, err := client.Renew(ctx, r.ID, time.Minute, nil); err != nil || first.seen.Load() != 1 {
		t.Errorf("a Renew: %v; want it at the broker that answered last", err)
	}
	first.does.Store(passes)
	second.does.Store(turnsAway)
	if _, err := client.Refund(ctx, r.ID, budget.Unused()); err != nil {
		t.Error(err)
	}
	if got := left(t, c); got != 1000 {
		t.Errorf("%d left after the Refund, want 1000", got)
	}
	if _, err := budget.New(first.URL, "k", budget.WithAddresses("nowhere")); err == nil {
		t.Error("a second address without a scheme is accepted")
	}
}
