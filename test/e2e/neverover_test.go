package e2e

import (
	"context"
	"errors"
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

// neverOverAccounts bounds -count.
const neverOverAccounts = 2000

// TestNeverOver: 64 parallel clients over three brokers on one Redis against a
// bucket of 1,000 that refills 1 a day. Exactly 10 Reserves of 100 pass,
// whatever the interleaving.
func TestNeverOver(t *testing.T) {
	f := startNeverOver(t)
	run := sharedFleet.runs.Add(1) - 1
	if run >= neverOverAccounts {
		t.Fatalf("-count is above %d", neverOverAccounts)
	}
	account := fmt.Sprintf("never-over-%d", run)
	var granted, refused atomic.Int64
	ids := make(chan string, 64)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 64 {
		c := f.client(t, i, budget.WithMaxWait(0))
		wg.Go(func() {
			<-start
			r, err := decided(c, budget.Request{Account: account, Amounts: map[string]int64{"tokens": 100}, Key: fmt.Sprint("caller-", i)})
			var no *budget.RefusedError
			switch {
			case err == nil:
				granted.Add(1)
				ids <- r.ID
			case errors.As(err, &no) && no.Refusal.Reason == budgetv1.RefusalReason_REFUSAL_REASON_RATE_LIMITED && no.Refusal.Remaining == 0:
				refused.Add(1)
			default:
				t.Errorf("%v", err)
			}
		})
	}
	close(start)
	wg.Wait()
	close(ids)
	if granted.Load() != 10 || refused.Load() != 54 {
		t.Fatalf("%d granted and %d refused, want 10 and 54", granted.Load(), refused.Load())
	}

	// What is given back, and no more, can be taken again, by any node.
	for i := 0; ; i++ {
		id, more := <-ids
		if !more {
			break
		}
		if _, err := f.client(t, i).Refund(context.Background(), id, budget.Amounts(map[string]int64{"tokens": 50})); err != nil {
			t.Error(err)
		}
	}
	if left := limitOf(t, overview(t, f.client(t, 0), account), "tokens").Remaining; left != 500 {
		t.Errorf("%d left after ten Refunds of 50 used of 100, want 500", left)
	}
}

// decided repeats a Reserve with the same key while the broker says that it
// can't decide in time, as callers do: on a busy machine 64 calls at once may
// pass the deadline.
func decided(c *budget.Client, request budget.Request) (*budget.Reservation, error) {
	for giveUp := time.Now().Add(time.Minute); ; {
		r, err := c.Reserve(context.Background(), request)
		if connect.CodeOf(err) != connect.CodeUnavailable || time.Now().After(giveUp) {
			return r, err
		}
	}
}

func startNeverOver(t *testing.T) *fleet {
	t.Helper()
	sharedFleet.once.Do(func() {
		// It outlives the run that starts it: the processes end with the test
		// process, whatever happens.
		sharedFleet.fleet = startFleet(forever{t}, servers.SharedRedis(t).URL(), manyAccounts(neverOverAccounts))
	})
	if sharedFleet.fleet == nil {
		t.Fatal("the brokers did not start in an earlier run")
	}
	return sharedFleet.fleet
}

// forever is a test whose end cleans nothing up.
type forever struct{ testing.TB }

func (forever) Cleanup(func()) {}

func (f forever) TempDir() string { return f.TB.TempDir() }
