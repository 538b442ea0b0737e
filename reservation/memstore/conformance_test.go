package memstore

import (
	"testing"

	"github.com/budgetd/budgetd/reservation/storetest"
)

// newEngine is a memory engine for the suite.
func newEngine(tb testing.TB, clock *storetest.Clock) storetest.Engine {
	tb.Helper()
	store, err := New(Config{Clock: clock.Now})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { store.Close() })
	return storetest.Engine{Store: store, LoseData: store.loseData, Incarnate: store.incarnate, Checks: 1000}
}

func TestConformance(t *testing.T) { storetest.Run(t, newEngine) }
