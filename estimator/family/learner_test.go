package family

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
)

var learnedAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// observe tells of n calls whose real count is between two shares of the
// ceiling, a second apart, and returns the instant after.
func observe(l *Learner, model string, n int, from, to float64, at time.Time) time.Time {
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		ceiling := 1000 + r.Int64N(100_000)
		ratio := from + (to-from)*r.Float64()
		l.Observe(model, quota.Tokens(ceiling), quota.Tokens(math.Round(float64(ceiling)*ratio)), at)
		at = at.Add(time.Second)
	}
	return at
}

func TestLearnerLowersTheCeilingOnceEnoughIsKnown(t *testing.T) {
	var l Learner
	at := observe(&l, "m", enough-1, 0.55, 0.65, learnedAt)
	if got, ok := l.Of("m", at); ok {
		t.Errorf("learned %+v from %d calls", got, enough-1)
	}
	at = observe(&l, "m", 800, 0.55, 0.65, at)
	got, ok := l.Of("m", at)
	// The quantile's bucket is at most 1 percent wide.
	if !ok || got.Most < 0.64*headroom || got.Most > 0.65*1.01*headroom {
		t.Errorf("learned %+v, %t; want about %g", got, ok, 0.65*headroom)
	}
	if math.Abs(got.Mean-0.6) > 0.01 {
		t.Errorf("the mean is %g, want 0.6", got.Mean)
	}
	if got, ok := l.Of("another", at); ok {
		t.Errorf("another model has learned %+v", got)
	}
}

// The promise: of calls like those before, few are counted too low.
func TestLearnedCeilingsHoldForTheNextCalls(t *testing.T) {
	var l Learner
	r := rand.New(rand.NewPCG(3, 4))
	at, under, learned := learnedAt, 0, 0
	for range 20_000 {
		ceiling := float64(300 + r.IntN(50_000))
		real := ceiling * min(math.Exp(r.NormFloat64()*0.1-0.6), 0.99)
		if got, ok := l.Of("m", at); ok {
			learned++
			if real > ceiling*got.Most {
				under++
			}
			if got.Most > 0.9 && learned > 1000 {
				t.Fatalf("after %d calls the factor is %g, though the ratio is hardly ever above 0.75", learned, got.Most)
			}
		}
		l.Observe("m", quota.Tokens(ceiling), quota.Tokens(real), at)
		at = at.Add(time.Second)
	}
	if learned < 15_000 || under*1000 > learned*missed {
		t.Errorf("%d of %d calls were counted too low, want at most %d in 1,000", under, learned, missed)
	}
}

func TestLearnerGrowsAtOnceAfterAnUnderCount(t *testing.T) {
	var l Learner
	at := observe(&l, "m", 1000, 0.5, 0.6, learnedAt)
	before, _ := l.Of("m", at)
	l.Observe("m", 1000, 900, at)
	got, ok := l.Of("m", at)
	if want := 0.9 * headroom; !ok || math.Abs(got.Most-want) > 1e-9 {
		t.Errorf("after a call of 0.9 the factor is %g, want %g", got.Most, want)
	}
	if got, _ := l.Of("m", at.Add(raisedHalfLife)); math.Abs(got.Most-(before.Most+0.9*headroom)/2) > 0.01 {
		t.Errorf("after half its life the factor is %g, want half way to %g", got.Most, before.Most)
	}
	// Also with nothing known before, and above the rule's own ceiling.
	l.Observe("new", 1000, 1500, at)
	if got, ok := l.Of("new", at); !ok || math.Abs(got.Most-1.5*headroom) > 1e-9 {
		t.Errorf("after one call of 1.5 the factor is %+v, %t", got, ok)
	}
}

func TestLearnerStaysInItsBounds(t *testing.T) {
	var l Learner
	at := observe(&l, "low", 1000, 0.001, 0.1, learnedAt)
	if got, _ := l.Of("low", at); got.Most != LeastFactor {
		t.Errorf("the factor is %g, want at least %g", got.Most, LeastFactor)
	}
	at = observe(&l, "close", 1000, 0.97, 1, at)
	if got, ok := l.Of("close", at); ok {
		t.Errorf("nothing was too low, and the factor is %g", got.Most)
	}
	l.Observe("huge", LearnFrom, quota.Tokens(quota.MaxAmount), at)
	if got, _ := l.Of("huge", at); got.Most > MostFactor || got.Most < MostFactor*0.99 {
		t.Errorf("the factor is %g, want %g", got.Most, MostFactor)
	}
	// What tells nothing.
	l.Observe("small", LearnFrom-1, 1_000_000, at)
	l.Observe("none", 1000, 0, at)
	for _, model := range []string{"small", "none"} {
		if got, ok := l.Of(model, at); ok {
			t.Errorf("%s: learned %+v", model, got)
		}
	}
	// A clock that goes back.
	l.Observe("low", 1000, 50, learnedAt.Add(-time.Hour))
	if got, _ := l.Of("low", learnedAt.Add(-time.Hour)); got.Most != LeastFactor {
		t.Errorf("before it began the factor is %g", got.Most)
	}
}

func TestLearnerForgets(t *testing.T) {
	var l Learner
	at := observe(&l, "m", 2*enough, 0.5, 0.6, learnedAt)
	if _, ok := l.Of("m", at.Add(halfLife/2)); !ok {
		t.Error("forgotten within half of its life")
	}
	if got, ok := l.Of("m", at.Add(2*halfLife)); ok {
		t.Errorf("remembered %+v with a quarter of %d calls", got, 2*enough)
	}
	// New behaviour takes the place of the old.
	at = observe(&l, "m", 1000, 0.5, 0.6, at)
	at = observe(&l, "m", 1000, 0.8, 0.85, at.Add(8*halfLife))
	at = observe(&l, "m", 1000, 0.5, 0.55, at.Add(10*halfLife))
	if got, _ := l.Of("m", at); got.Most > 0.6 {
		t.Errorf("after ten half-lives the factor is still %g", got.Most)
	}
	for i := range MaxModels {
		l.Observe(fmt.Sprint("model ", i), 1000, 500, at.Add(time.Second))
	}
	if len(l.models) != MaxModels || l.models["m"] != nil {
		t.Errorf("%d models are kept, want %d without the oldest", len(l.models), MaxModels)
	}
}
