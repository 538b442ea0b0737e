package faultstore

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/memstore"
	"github.com/budgetd/budgetd/reservation/storetest"
)

func newInner(t *testing.T, clock *storetest.Clock) *memstore.Store {
	t.Helper()
	inner, err := memstore.New(memstore.Config{Clock: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inner.Close() })
	return inner
}

func wrap(t *testing.T, inner reservation.Store, config Config) *Store {
	t.Helper()
	s, err := New(inner, config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var hold = reservation.Hold{
	Counter: reservation.Counter{Limit: "tokens"}, Kind: quota.KindBucket, Amount: 4,
	Bucket: quota.Bucket{Capacity: 1_000_000, Refill: 1, PerMicros: 86_400_000_000}, OnExpiry: quota.ExpiryGiveBack,
}

func ask(clock *storetest.Clock) reservation.ReserveRequest {
	return reservation.ReserveRequest{
		Account: "acme", ID: reservation.NewID(clock.Now()), Holds: []reservation.Hold{hold}, Lease: time.Minute,
	}
}

func TestErrorBeforeDoesNothing(t *testing.T) {
	clock := storetest.NewClock()
	inner := newInner(t, clock)
	s := wrap(t, inner, Config{Before: 1})
	q := ask(clock)
	if _, err := s.Reserve(t.Context(), q); !errors.Is(err, reservation.ErrUnavailable) {
		t.Fatalf("Reserve: %v", err)
	}
	if record, err := inner.Lookup(t.Context(), q.Account, q.ID); err != nil || record.State != reservation.StateUnknown {
		t.Fatalf("state %d, %v", record.State, err)
	}
	if got := s.Faults(); got != (Faults{Before: 1}) {
		t.Fatalf("faults %+v", got)
	}
}

func TestErrorAfterLosesTheAnswer(t *testing.T) {
	clock := storetest.NewClock()
	inner := newInner(t, clock)
	s := wrap(t, inner, Config{After: 1})
	q := ask(clock)
	answer, err := s.Reserve(t.Context(), q)
	if !errors.Is(err, reservation.ErrUnavailable) || answer.Verdict != 0 {
		t.Fatalf("Reserve: verdict %d, %v", answer.Verdict, err)
	}
	if record, err := inner.Lookup(t.Context(), q.Account, q.ID); err != nil || record.State != reservation.StateHeld {
		t.Fatalf("state %d, %v", record.State, err)
	}
}

func TestDelayEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := storetest.NewClock()
		inner := newInner(t, clock)
		s := wrap(t, inner, Config{Seed: 3, Delay: 1, MaxDelay: time.Hour})
		began := time.Now()
		if err := s.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited == 0 || waited > time.Hour {
			t.Fatalf("waited %s", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		q := ask(clock)
		if _, err := s.Reserve(ctx, q); !errors.Is(err, reservation.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Reserve: %v", err)
		}
		if record, _ := inner.Lookup(t.Context(), q.Account, q.ID); record.State != reservation.StateUnknown {
			t.Fatalf("a call that was given up was done: state %d", record.State)
		}
	})
}

// calls returns which of n calls failed.
func calls(t *testing.T, s *Store, n int) []bool {
	failed := make([]bool, n)
	for i := range failed {
		failed[i] = s.Ping(t.Context()) != nil
	}
	return failed
}

func TestSeedDecides(t *testing.T) {
	inner := newInner(t, storetest.NewClock())
	config := Config{Seed: 7, Before: 0.3, After: 0.2}
	first, second := calls(t, wrap(t, inner, config), 200), calls(t, wrap(t, inner, config), 200)
	config.Seed = 8
	other := calls(t, wrap(t, inner, config), 200)
	same, otherwise := true, false
	for i := range first {
		same = same && first[i] == second[i]
		otherwise = otherwise || first[i] != other[i]
	}
	if !same || !otherwise {
		t.Fatalf("same seed same faults: %v; other seed other faults: %v", same, otherwise)
	}
}

func TestRates(t *testing.T) {
	inner := newInner(t, storetest.NewClock())
	s := wrap(t, inner, Config{Seed: 1, Before: 0.25})
	const n = 10_000
	failed := 0
	for _, f := range calls(t, s, n) {
		if f {
			failed++
		}
	}
	// Five standard deviations of a binomial.
	if off := math.Abs(float64(failed) - 0.25*n); off > 5*math.Sqrt(n*0.25*0.75) {
		t.Fatalf("%d of %d failed at a rate of 0.25", failed, n)
	}
	s.SetEnabled(false)
	for i, f := range calls(t, s, 100) {
		if f {
			t.Fatalf("call %d failed while faults are off", i)
		}
	}
}

func TestBadConfig(t *testing.T) {
	inner := newInner(t, storetest.NewClock())
	for name, config := range map[string]Config{
		"negative":           {Before: -0.1},
		"above one":          {After: 1.1},
		"not a number":       {Delay: math.NaN(), MaxDelay: time.Second},
		"delay of no length": {Delay: 0.5},
		"negative delay":     {MaxDelay: -time.Second},
	} {
		if _, err := New(inner, config); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestConformance: without faults it is the engine that it wraps.
func TestConformance(t *testing.T) {
	storetest.RunScenarios(t, func(tb testing.TB, clock *storetest.Clock) storetest.Engine {
		s := wrap(t, &renewable{t: t, clock: clock}, Config{})
		renew := s.inner.(*renewable)
		renew.loseData()
		return storetest.Engine{Store: s, LoseData: renew.loseData}
	})
}

// renewable is an engine whose data is lost by starting another.
type renewable struct {
	reservation.Store
	t     *testing.T
	clock *storetest.Clock
}

func (r *renewable) loseData() { r.Store = newInner(r.t, r.clock) }

// TestRepeatingIsSafe: callers that repeat whatever failed get what they asked
// for once, under any faults: ids make Reserve and Refund idempotent.
func TestRepeatingIsSafe(t *testing.T) {
	clock := storetest.NewClock()
	inner := newInner(t, clock)
	s := wrap(t, inner, Config{Seed: 11, Before: 0.3, After: 0.3})
	const callers, each = 8, 50
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range each {
				q := ask(clock)
				for {
					answer, err := s.Reserve(t.Context(), q)
					if err == nil && answer.Verdict != reservation.Granted && answer.Verdict != reservation.Closed {
						t.Errorf("Reserve: verdict %d", answer.Verdict)
					}
					if err == nil {
						break
					}
				}
				r := reservation.RefundRequest{Account: q.Account, ID: q.ID, Lease: q.Lease, Actual: []quota.Amount{1}}
				for {
					answer, err := s.Refund(t.Context(), r)
					if err == nil && answer.Verdict != reservation.RefundSettled && answer.Verdict != reservation.RefundSame {
						t.Errorf("Refund: verdict %d", answer.Verdict)
					}
					if err == nil {
						break
					}
				}
			}
		})
	}
	group.Wait()
	levels, _, err := inner.Levels(t.Context(), "acme", []reservation.Hold{hold})
	if err != nil {
		t.Fatal(err)
	}
	if want := hold.Bucket.Capacity - callers*each; levels[0].Remaining != want {
		t.Fatalf("%d remain, not %d: something was charged twice or not at all", levels[0].Remaining, want)
	}
	if f := s.Faults(); f.Before == 0 || f.After == 0 {
		t.Fatalf("nothing failed: %+v", f)
	}
}
