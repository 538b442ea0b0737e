package memstore

import (
	"testing"
	"time"

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
	return storetest.Engine{Store: store, LoseData: store.loseData, Incarnate: store.incarnate, Checks: 1000}
}

func TestConformance(t *testing.T) { storetest.Run(t, newEngine) }
