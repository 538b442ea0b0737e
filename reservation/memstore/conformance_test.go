package memstore

import (
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/storetest"
)

// newEngine is a memory engine for the suite.
func newEngine(tb testing.TB, clock *storetest.Clock) storetest.Engine {
	tb.Helper()
	// The suite follows quotas through whole months.
	store, err := New(Config{Clock: clock.Now, QuotaIdle: 100 * 365 * 24 * time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { store.Close() })
	return storetest.Engine{
		Store: store, LoseData: store.loseData, Incarnate: store.incarnate, Checks: 1000,
		Drift: func(account string, c reservation.Counter, p quota.Period, held, unposted quota.Amount) {
			store.mu.Lock()
			defer store.mu.Unlock()
			found := store.lookup(store.accounts[account], &reservation.Hold{Counter: c, Kind: quota.KindQuota, Period: p})
			found.held += held
			found.unposted += unposted
		},
	}
}

func TestConformance(t *testing.T) { storetest.Run(t, newEngine) }

func TestSequences(t *testing.T) {
	storetest.RunSequences(t, newEngine, storetest.Sequences{Count: 2000, Workers: 2, LookEvery: 1})
}
