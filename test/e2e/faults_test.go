package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/test/servers"
)

const faultsPolicy = `
plans:
  pro:
    limits:
      - {name: tokens, meter: tokens, rate: 1M/s}
      - {name: slow, meter: in_flight, max: 5, match: {route: slow}}
    quotas:
      - {name: month, meter: tokens, amount: 10000, period: month}
  open:
    limits:
      - {name: tokens, meter: tokens, rate: 1M/s, when_down: open}
accounts:
  acme: {plan: pro}
  other: {plan: pro}
  lenient: {plan: open}
`

// patient is what callers of a busy test machine set.
var patient = []string{"--deadline", "2s"}

func reserveTokens(tb testing.TB, c *budget.Client, account string, n int64) *budget.Reservation {
	tb.Helper()
	r, err := decided(c, budget.Request{Account: account, Amounts: map[string]int64{"tokens": n}})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func refundTokens(tb testing.TB, c *budget.Client, id string, n int64) {
	tb.Helper()
	if _, err := c.Refund(context.Background(), id, budget.Amounts(map[string]int64{"tokens": n})); err != nil {
		tb.Fatal(err)
	}
}

// settledAt waits until nothing is open and the engine's counter is the
// ledger's.
func settledAt(tb testing.TB, c *budget.Client, account string, tokens int64) {
	tb.Helper()
	var month *budgetv1.LimitStatus
	eventually(tb, 30*time.Second, fmt.Sprintf("%s has %d tokens in counters and ledger", account, tokens), func() bool {
		view := overview(tb, c, account)
		month = limitOf(tb, view, "month")
		return month.Held == 0 && month.Unposted == 0 && month.Used == tokens && month.Posted == tokens && view.Totals["tokens"] == tokens
	})
}

// TestBrokersDie: Refunds go on over whatever broker is left, with kill -9 in
// between, and the books are exact.
func TestBrokersDie(t *testing.T) {
	redis := servers.NewRedis(t)
	f := startFleet(t, redis.URL(), faultsPolicy, patient...)
	var spent atomic.Int64
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 25 {
				r := reserveTokens(t, f.client(t, worker%2), "acme", 20) // the third broker dies
				n := int64(i % 9)
				refundTokens(t, f.client(t, worker%2), r.ID, n)
				spent.Add(n)
			}
		})
	}
	victim := f.brokers[2]
	for i := range 5 {
		r, err := decided(newClient(t, victim.URL, f.key), budget.Request{Account: "acme", Amounts: map[string]int64{"tokens": 20}, Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		refundTokens(t, newClient(t, victim.URL, f.key), r.ID, int64(i))
		spent.Add(int64(i))
	}
	victim.Kill()
	wg.Wait()
	settledAt(t, f.client(t, 0), "acme", spent.Load())
}

// TestRedisLosesEverything: after FLUSHALL and after a restart without a dump,
// quotas are exact again before the next grant, and Refunds of forgotten
// reservations are posted once.
func TestRedisLosesEverything(t *testing.T) {
	redis := servers.NewRedis(t)
	f := startFleet(t, redis.URL(), faultsPolicy, patient...)
	c := f.client(t, 0)
	refundTokens(t, c, reserveTokens(t, c, "acme", 9000).ID, 9000)
	settledAt(t, c, "acme", 9000)
	for name, lose := range map[string]func(){
		"FLUSHALL": redis.FlushAll,
		"restart":  func() { redis.Kill(); redis.Restart() },
	} {
		open := reserveTokens(t, c, "acme", 100)
		lose()
		used := overview(t, c, "acme").Totals["tokens"]
		_, err := decided(f.client(t, 1), budget.Request{Account: "acme", Amounts: map[string]int64{"tokens": 10_000 - used + 1}})
		if connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%s: one token more than is left: %v, want refused", name, err)
		}
		for n := range fleetSize {
			refundTokens(t, f.client(t, n), open.ID, 10)
		}
		settledAt(t, c, "acme", used+10)
	}
}

// TestRedisFrozen: whatever Redis does, Reserve answers by each limit's rule.
func TestRedisFrozen(t *testing.T) {
	redis := servers.NewRedis(t)
	f := startFleet(t, redis.URL(), faultsPolicy)
	closed, open := f.client(t, 0, budget.WithMaxWait(0)), f.client(t, 1, budget.WithMaxWait(0))
	reserveTokens(t, closed, "acme", 1)
	overview(t, open, "lenient") // the key is known: this is about Redis
	redis.Freeze()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			_, err := closed.Reserve(context.Background(), budget.Request{Account: "acme", Amounts: map[string]int64{"tokens": 1}})
			if connect.CodeOf(err) != connect.CodeUnavailable {
				t.Errorf("closed: %v, want unavailable", err)
			}
		})
		wg.Go(func() {
			r, err := open.Reserve(context.Background(), budget.Request{Account: "lenient", Amounts: map[string]int64{"tokens": 1}})
			if err != nil || !r.Degraded {
				t.Errorf("open: %+v, %v; want granted and degraded", r, err)
			}
		})
	}
	answered := make(chan struct{})
	go func() { wg.Wait(); close(answered) }()
	select {
	case <-answered:
	case <-time.After(20 * time.Second):
		t.Fatal("Reserve waits for a frozen Redis")
	}
	redis.Thaw()
	eventually(t, 20*time.Second, "Reserve works again", func() bool {
		_, err := closed.Reserve(context.Background(), budget.Request{Account: "acme", Amounts: map[string]int64{"tokens": 1}})
		return err == nil
	})
}

// TestCrashedCaller: what a caller held that never came back is free again by
// itself, on every node, and its expiry is in the ledger.
func TestCrashedCaller(t *testing.T) {
	f := startFleet(t, servers.NewRedis(t).URL(), faultsPolicy, patient...)
	c := f.client(t, 0)
	var ids []string
	for range 5 {
		r, err := decided(c, budget.Request{Account: "acme", Labels: map[string]string{"route": "slow"}, Amounts: map[string]int64{"tokens": 100}, Lease: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	_, err := decided(c, budget.Request{Account: "acme", Labels: map[string]string{"route": "slow"}, Lease: time.Second})
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatalf("a sixth of five slots: %v", err)
	}
	settledAt(t, f.client(t, 1), "acme", 0)
	for _, id := range ids {
		answer, err := f.client(t, 2).Service().GetReservation(context.Background(), connect.NewRequest(&budgetv1.GetReservationRequest{ReservationId: id}))
		if err != nil {
			t.Fatal(err)
		}
		if m := answer.Msg; m.State != budgetv1.ReservationState_RESERVATION_STATE_EXPIRED || m.LedgerState != budgetv1.LedgerState_LEDGER_STATE_POSTED {
			t.Errorf("%s, %s; want expired and posted", m.State, m.LedgerState)
		}
	}
	if slow := limitOf(t, overview(t, c, "acme"), "slow"); slow.Held != 0 {
		t.Errorf("%d slots are still held", slow.Held)
	}
}

// TestOneKeyManyNodes: one idempotency key, asked on all brokers at once, is one
// reservation.
func TestOneKeyManyNodes(t *testing.T) {
	f := startFleet(t, servers.SharedRedis(t).URL(), faultsPolicy, patient...)
	ids := make(chan string, 30)
	var wg sync.WaitGroup
	for i := range 30 {
		c := f.client(t, i)
		wg.Go(func() {
			r, err := decided(c, budget.Request{Account: "acme", Key: "one", Amounts: map[string]int64{"tokens": 100}})
			if err != nil {
				t.Error(err)
				return
			}
			ids <- r.ID
		})
	}
	wg.Wait()
	close(ids)
	seen := map[string]bool{}
	for id := range ids {
		seen[id] = true
	}
	if len(seen) != 1 {
		t.Errorf("%d reservations for one key", len(seen))
	}
	if month := limitOf(t, overview(t, f.client(t, 0), "acme"), "month"); month.Held != 100 {
		t.Errorf("%d tokens held, want 100", month.Held)
	}
}

// TestGracefulStop: a broker that is asked to stop finishes the Refunds that it
// has begun, and loses none that it answered.
func TestGracefulStop(t *testing.T) {
	f := startFleet(t, servers.SharedRedis(t).URL(), faultsPolicy, patient...)
	stopping := f.brokers[0]
	c := newClient(t, stopping.URL, f.key)
	var spent atomic.Int64
	var wg sync.WaitGroup
	begun := make(chan struct{}, 64)
	for range 16 {
		r := reserveTokens(t, f.client(t, 1), "acme", 50)
		wg.Go(func() {
			begun <- struct{}{}
			answer, err := c.Refund(context.Background(), r.ID, budget.Amounts(map[string]int64{"tokens": 3}))
			if err == nil {
				spent.Add(answer.Charged["tokens"])
				return
			}
			// Turned away: another node takes it.
			refundTokens(t, f.client(t, 1), r.ID, 3)
			spent.Add(3)
		})
	}
	<-begun
	stopping.Stop()
	wg.Wait()
	settledAt(t, f.client(t, 1), "acme", spent.Load())
	if spent.Load() != 48 {
		t.Errorf("%d tokens spent, want 48", spent.Load())
	}
}
