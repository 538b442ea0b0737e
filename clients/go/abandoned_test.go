package budget_test

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
)

var slow = budget.Request{Account: "a", Labels: map[string]string{"route": "slow"}, Amounts: hundred.Amounts}

// wantAllBack waits until nothing is held, neither tokens nor the slot.
func wantAllBack(t *testing.T, direct *budget.Client) {
	t.Helper()
	waitFor(t, "the return of what was held", func() bool { return left(t, direct) == 1000 })
	r, err := direct.Reserve(context.Background(), slow)
	if err != nil {
		t.Fatalf("the slot after it: %v", err)
	}
	if _, err := direct.Refund(context.Background(), r.ID, budget.Unused()); err != nil {
		t.Error(err)
	}
}

// A caller that hangs up while its Reserve is under way leaves nothing behind,
// whether the broker's answer comes later or never.
func TestHangUpWhileReserving(t *testing.T) {
	direct, b := start(t)
	nothing := func(context.Context, *budget.Reservation) (budget.Usage, error) {
		t.Error("the function ran for a caller that has gone")
		return budget.Unused(), nil
	}
	for _, way := range []struct {
		name  string
		ask   func(context.Context, *budget.Client) error
		after int32 // what the gate does next
	}{
		{"Reserve, the answer comes", func(ctx context.Context, c *budget.Client) error { _, err := c.Reserve(ctx, slow); return err }, passes},
		{"Begin, the answer is lost", func(ctx context.Context, c *budget.Client) error { _, err := c.Begin(ctx, slow); return err }, loses},
		{"Do, the answer comes", func(ctx context.Context, c *budget.Client) error { return c.Do(ctx, slow, nothing) }, passes},
		{"Do, the answer is lost", func(ctx context.Context, c *budget.Client) error { return c.Do(ctx, slow, nothing) }, loses},
	} {
		g := newGate(t, b.URL)
		g.does.Store(stalls)
		client, err := budget.New(g.URL, direct.Key(), budget.WithDeadline(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		ctx, hangUp := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- way.ask(ctx, client) }()
		waitFor(t, "the hold", func() bool { return left(t, direct) == 900 })
		hangUp()
		select {
		case err := <-ended:
			if connect.CodeOf(err) != connect.CodeCanceled {
				t.Errorf("%s: %v, want canceled", way.name, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: a caller that has gone waits for the broker", way.name)
		}
		seen := g.seen.Load()
		g.does.Store(way.after)
		if way.after == loses {
			waitFor(t, "another Reserve", func() bool { return g.seen.Load() > seen })
			g.does.Store(passes)
		}
		wantAllBack(t, direct)
		if err := client.Close(context.Background()); err != nil {
			t.Errorf("%s: Close: %v", way.name, err)
		}
	}
}

// A Reserve whose answer did not come in time is given back, whatever the rule
// for it says of the call.
func TestLostReserveIsGivenBack(t *testing.T) {
	direct, b := start(t)
	local, err := budget.Local(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, rule := range map[string]budget.WhenDown{"open": budget.Open(), "closed": budget.Closed(), "local": local} {
		first, second := newGate(t, b.URL), newGate(t, b.URL)
		first.does.Store(loses)
		second.does.Store(turnsAway)
		client, err := budget.New(first.URL, direct.Key(), budget.WithAddresses(second.URL), budget.WithWhenDown(rule), budget.WithMaxWait(0))
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.Begin(context.Background(), slow)
		if (err == nil) != (name != "closed") || err == nil && r.ID != "" {
			t.Errorf("%s: %v, %v", name, r, err)
		}
		if got := left(t, direct); got != 900 {
			t.Errorf("%s: %d left, want 900: the first broker took it", name, got)
		}
		second.does.Store(passes)
		wantAllBack(t, direct)
	}
}

// Who names a call may ask again by that name, and finds what was held.
func TestNamedReserveIsTheCallers(t *testing.T) {
	direct, b := start(t)
	g := newGate(t, b.URL)
	g.does.Store(loses)
	client, err := budget.New(g.URL, direct.Key())
	if err != nil {
		t.Fatal(err)
	}
	named := slow
	named.Key = "order-7"
	if _, err := client.Reserve(context.Background(), named); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Fatalf("a Reserve whose answer is lost: %v", err)
	}
	g.does.Store(passes)
	if err := client.Close(context.Background()); err != nil {
		t.Error(err)
	}
	r, err := client.Reserve(context.Background(), named)
	if err != nil || left(t, direct) != 900 {
		t.Fatalf("the same again: %v, with %d left", err, left(t, direct))
	}
	if _, err := client.Refund(context.Background(), r.ID, budget.Unused()); err != nil {
		t.Error(err)
	}
}
