package budget_test

import (
	"context"
	"errors"
	"testing"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// Close waits for what ends in the background, and says so when it can't; what
// ends after Close ends before EndInBackground returns.
func TestEndInBackground(t *testing.T) {
	direct, b := start(t)
	g := newGate(t, b.URL)
	client, err := budget.New(g.URL, direct.Key(), budget.WithRefundTimeout(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	begin := func() *budget.Running {
		t.Helper()
		running, err := client.Begin(ctx, hundred)
		if err != nil {
			t.Fatal(err)
		}
		return running
	}
	first, second := begin(), begin()
	g.does.Store(stalls)
	ended := make(chan int64, 1)
	first.EndInBackground(ctx, budget.Amounts(map[string]int64{"tokens": 30}), func(r *budgetv1.RefundResponse, err error) {
		if err != nil {
			t.Error(err)
		}
		ended <- r.GetCharged()["tokens"]
	})
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := client.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close while a Refund is under way: %v", err)
	}
	g.does.Store(passes)
	if err := client.Close(ctx); err != nil {
		t.Error(err)
	}
	select {
	case charged := <-ended:
		if charged != 30 {
			t.Errorf("charged %d, want 30", charged)
		}
	default:
		t.Error("Close did not wait")
	}
	second.EndInBackground(ctx, budget.Unused(), nil)
	if got := left(t, direct); got != 970 {
		t.Errorf("%d left, want 970", got)
	}
}
