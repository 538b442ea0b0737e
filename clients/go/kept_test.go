package budget_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/test/broker"
)

func charged(t *testing.T, c *budget.Client, id string) int64 {
	t.Helper()
	story, err := c.Service().GetReservation(context.Background(), connect.NewRequest(&budgetv1.GetReservationRequest{ReservationId: id}))
	if err != nil {
		t.Fatal(err)
	}
	return story.Msg.Outcome.GetCharged()["tokens"]
}

// lostRefunds collects what OnLost is told.
type lostRefunds struct {
	mu   sync.Mutex
	each []budget.LostRefund
}

func (l *lostRefunds) add(lost budget.LostRefund) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.each = append(l.each, lost)
}

func (l *lostRefunds) all() []budget.LostRefund {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.each
}

// A Refund outlives a crash of the broker: it is delivered to the one that comes
// back, without anybody's doing.
func TestKeptRefundIsDelivered(t *testing.T) {
	data := t.TempDir()
	broker.Apply(t, policy, "--data", data)
	key := broker.Key(t, []string{"a"}, "--data", data)
	b := broker.Start(t, "--data", data, "--deadline", "2s")
	g := newGate(t, b.URL)
	lost := &lostRefunds{}
	c, err := budget.New(g.URL, key, budget.WithRefundTimeout(100*time.Millisecond), budget.WithOnLost(lost.add))
	if err != nil {
		t.Fatal(err)
	}
	var id string
	if err := c.Do(context.Background(), hundred, func(_ context.Context, r *budget.Reservation) (budget.Usage, error) {
		id = r.ID
		b.Kill()
		return budget.Amounts(map[string]int64{"tokens": 30}), nil
	}); err != nil {
		t.Errorf("Do with a Refund that is kept: %v", err)
	}
	g.leadTo(t, broker.Start(t, "--data", data, "--deadline", "2s").URL)
	waitFor(t, "the delivery", func() bool { return charged(t, c, id) == 30 })
	if err := c.Close(context.Background()); err != nil || len(lost.all()) != 0 {
		t.Errorf("Close after it: %v; lost %v", err, lost.all())
	}
}

// Close delivers what waits, however long the next try is away, and keeps nothing
// afterwards.
func TestCloseFlushesRefunds(t *testing.T) {
	c, b := start(t)
	g := newGate(t, b.URL)
	lost := &lostRefunds{}
	client, err := budget.New(g.URL, c.Key(), budget.WithRefundTimeout(100*time.Millisecond), budget.WithOnLost(lost.add))
	if err != nil {
		t.Fatal(err)
	}
	end := func() (string, *budget.RefundError) {
		g.does.Store(passes)
		var running *budget.Running
		waitFor(t, "a reservation", func() bool { // the breaker may be open still
			running, err = client.Begin(context.Background(), hundred)
			return err == nil
		})
		g.does.Store(turnsAway)
		var failed *budget.RefundError
		if _, err := running.End(context.Background(), budget.Amounts(map[string]int64{"tokens": 30})); !errors.As(err, &failed) {
			t.Fatalf("End without a broker: %v", err)
		}
		return running.ID, failed
	}
	id, failed := end()
	if !failed.Kept {
		t.Error("the first Refund is not kept")
	}
	g.does.Store(passes)
	if err := client.Close(context.Background()); err != nil || charged(t, c, id) != 30 {
		t.Errorf("Close: %v; charged %d, want 30", err, charged(t, c, id))
	}
	id, failed = end()
	if all := lost.all(); failed.Kept || len(all) != 1 || all[0].Reservation != id || all[0].Usage.Amounts["tokens"] != 30 || !strings.Contains(all[0].Err.Error(), "the client is closed") {
		t.Errorf("after Close: kept %v, lost %v", failed.Kept, all)
	}
}

// What can't be kept, or is given up, is handed to OnLost with what was used.
func TestLostRefunds(t *testing.T) {
	for name, way := range map[string]struct {
		most int
		age  time.Duration
		then func(*testing.T, *budget.Client, *gate, string)
		why  string
	}{
		"too many wait":      {0, time.Hour, nil, "too many refunds wait already"},
		"tried for too long": {1, 0, nil, "it was tried for long enough"},
		"refused in the end": {1, time.Hour, func(t *testing.T, other *budget.Client, g *gate, id string) {
			if _, err := other.Refund(context.Background(), id, budget.Unused()); err != nil {
				t.Error(err)
			}
			g.does.Store(passes)
		}, "closed with another usage"},
		"closed without a broker": {1, time.Hour, nil, "the client is closed"},
	} {
		t.Run(name, func(t *testing.T) {
			c, b := start(t)
			g := newGate(t, b.URL)
			lost := &lostRefunds{}
			client, err := budget.New(g.URL, c.Key(), budget.WithRefundTimeout(50*time.Millisecond),
				budget.WithKeptRefunds(way.most, way.age), budget.WithOnLost(lost.add))
			if err != nil {
				t.Fatal(err)
			}
			var id string
			err = client.Do(context.Background(), hundred, func(_ context.Context, r *budget.Reservation) (budget.Usage, error) {
				id = r.ID
				g.does.Store(turnsAway)
				return budget.Amounts(map[string]int64{"tokens": 30}), nil
			})
			var failed *budget.RefundError
			if kept := !errors.As(err, &failed); kept != (way.most > 0) {
				t.Errorf("Do: %v", err)
			}
			if way.then != nil {
				way.then(t, c, g, id)
			}
			if name == "closed without a broker" {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				if err := client.Close(ctx); err == nil || !strings.Contains(err.Error(), "refunds that were not delivered: 1") {
					t.Errorf("Close: %v", err)
				}
			}
			waitFor(t, "the loss", func() bool { return len(lost.all()) > 0 })
			if l := lost.all(); len(l) != 1 || l[0].Reservation != id || l[0].Usage.Amounts["tokens"] != 30 || !strings.Contains(l[0].Err.Error(), way.why) {
				t.Errorf("lost %v, want one because %s", l, way.why)
			}
		})
	}
}
