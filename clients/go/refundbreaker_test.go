package budget_test

import (
	"context"
	"testing"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
)

// The Client's own time for a Refund is no caller's haste: a broker that says
// nothing to Refunds is not asked for a while, as with any other call.
func TestRefundsCountAgainstABrokerThatHangs(t *testing.T) {
	c, b := start(t)
	g := newGate(t, b.URL)
	const patience = 200 * time.Millisecond
	client, err := budget.New(g.URL, c.Key(), budget.WithDeadline(patience), budget.WithRefundTimeout(patience), budget.WithKeptRefunds(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	running := make([]*budget.Running, 9)
	for i := range running {
		if running[i], err = client.Begin(context.Background(), budget.Request{Account: "a", Amounts: map[string]int64{"tokens": 1}}); err != nil {
			t.Fatal(err)
		}
	}
	g.does.Store(hangs)
	begun, seen := time.Now(), g.seen.Load()
	for _, r := range running {
		if _, err := r.End(context.Background(), budget.Unused()); err == nil {
			t.Error("a Refund that hangs has succeeded")
		}
	}
	if seen, most := int(g.seen.Load()-seen), 5+int(time.Since(begun)/time.Second); seen > most {
		t.Errorf("%d Refunds reached the broker that hangs, want %d at most", seen, most)
	}
}
