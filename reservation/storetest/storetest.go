package storetest

import (
	"testing"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Engine is what the suite tests.
type Engine struct {
	// Store is an engine that was made with the clock of the test. It may be
	// used for many cases; between them the suite calls LoseData and may step
	// the clock back to [Epoch].
	Store reservation.Store

	// LoseData makes the engine lose everything, as FLUSHALL does: no record,
	// no counter, and every quota is unseeded. Required.
	LoseData func()

	// Incarnate makes the engine begin another incarnation with the data that
	// it has, as a restart or a restored dump does: every quota is unseeded, but
	// holds are still there. Nil if the engine can't.
	Incarnate func()

	// Drift makes a quota's counter that is there say more, or less, than the
	// account's records add up to, as a fault of the engine would. Nil if the
	// engine can't.
	Drift func(account string, counter reservation.Counter, period quota.Period, held, unposted quota.Amount)

	// Checks is how many random histories each property runs; 0 is 100. The
	// flag -rapid.checks, when given, goes before it.
	Checks int

	// SplitPools says that pools live elsewhere than accounts (on another
	// node of a Cluster): a pool's leg has a lease of its own and expires by
	// charging. The suite then leaves out what depends on a pool's state at
	// the moment of an expiry.
	SplitPools bool
}

// New makes an empty engine for a test, with clock.Now as its clock. Whatever
// it opens it closes with tb.Cleanup.
type New func(tb testing.TB, clock *Clock) Engine

// Run puts an engine through the whole suite.
func Run(t *testing.T, newEngine func(tb testing.TB, clock *Clock) Engine) {
	t.Run("Scenarios", func(t *testing.T) { RunScenarios(t, newEngine) })
	t.Run("Edges", func(t *testing.T) { runEdges(t, newEngine) })
	t.Run("Concurrency", func(t *testing.T) { runConcurrency(t, newEngine) })
	t.Run("Model", func(t *testing.T) { runModel(t, newEngine) })
	t.Run("NeverOver", func(t *testing.T) { runNeverOver(t, newEngine) })
	t.Run("Forecast", func(t *testing.T) { runForecast(t, newEngine) })
	t.Run("Fairness", func(t *testing.T) { runFairness(t, newEngine) })
}

// begin makes an engine, and checks that it offers what the suite needs.
func begin(tb testing.TB, newEngine New) (Engine, *Clock) {
	tb.Helper()
	clock := NewClock()
	engine := newEngine(tb, clock)
	if engine.Store == nil || engine.LoseData == nil {
		tb.Fatal("storetest.Engine: Store and LoseData are required")
	}
	return engine, clock
}
