package forecast

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	start = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	key   = Key{Account: "acme", Model: "m", Route: "chat", Bound: Bound(4096)}
)

func want(t *testing.T, l *Learner, now time.Time, most, tokens int64, ok bool) {
	t.Helper()
	if got, known := l.Forecast(key, most, now); got != tokens || known != ok {
		t.Fatalf("forecast %d %v, not %d %v", got, known, tokens, ok)
	}
}

func TestRank(t *testing.T) {
	l := New(Config{Quantile: 0.5})
	for n := int64(1); n < Enough; n++ {
		l.Observe(key, n, false, start)
		want(t, l, start, 4096, 4096, false)
	}
	l.Observe(key, 16, false, start)
	want(t, l, start, 4096, 9, true) // ceil(17/2)-th of 1 to 16
	want(t, l, start, 5, 5, false)   // no more than the call may use
	// Of another key nothing is known.
	if got, ok := l.Forecast(Key{Account: "globex"}, 100, start); ok || got != 100 {
		t.Fatalf("forecast %d %v of an unknown key", got, ok)
	}
}

func TestCutLengthsSayAtLeast(t *testing.T) {
	l := New(Config{Quantile: 0.5})
	for n := range int64(20) {
		l.Observe(key, 10, n%2 == 0, start) // half of them were cut at 10
	}
	want(t, l, start, 4096, 4096, false) // rank 11 of 20: the first that was cut
	for range 20 {
		l.Observe(key, 10, false, start)
	}
	want(t, l, start, 4096, 10, true)
}

func TestOldLengthsFade(t *testing.T) {
	l := New(Config{Quantile: 0.5, HalfLife: time.Hour})
	for range 40 {
		l.Observe(key, 1000, false, start)
	}
	now := start.Add(3 * time.Hour) // 40 of them weigh 5
	want(t, l, now, 4096, 4096, false)
	for range 20 {
		l.Observe(key, 10, false, now)
	}
	want(t, l, now, 4096, 10, true)
	want(t, l, now.Add(5*time.Hour), 4096, 4096, false)
}

func TestCoverageSlipsAndRecovers(t *testing.T) {
	l := New(Config{Quantile: 0.5})
	now, next := start, int64(100)
	for range 200 { // each longer than all before: no forecast covers it
		l.Observe(key, next, false, now)
		next += 10
	}
	want(t, l, now, 1<<30, 1<<30, false)
	for range 200 {
		l.Observe(key, 50, false, now)
	}
	want(t, l, now, 1<<30, 50, true)
}

// TestCoverage holds the rank to what it promises of exchangeable lengths.
func TestCoverage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 2))
	for _, q := range []float64{0.5, 0.9} {
		l := New(Config{Quantile: q})
		hits, tries := 0, 0
		for range 4000 {
			length := int64(rng.ExpFloat64() * 300)
			if forecast, ok := l.Forecast(key, 1<<40, start); ok {
				tries++
				if length <= forecast {
					hits++
				}
			}
			l.Observe(key, length, false, start)
		}
		// Five standard deviations of 4,000 tries, and the noise of 128 lengths.
		if share := float64(hits) / float64(tries); tries < 3000 || share < q-0.06 || share > q+0.06 {
			t.Errorf("seed %d: %d of %d forecasts at %g were long enough", seed, hits, tries, q)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	l := New(Config{Keys: 10})
	for n := range 100 {
		for range Enough {
			l.Observe(Key{Account: fmt.Sprint(n)}, 1, false, start)
		}
		l.Forecast(Key{Account: "0"}, 100, start) // used, so it stays
	}
	if l.Len() != 10 {
		t.Fatalf("%d keys are kept", l.Len())
	}
	if _, ok := l.Forecast(Key{Account: "0"}, 100, start); !ok {
		t.Error("the key in use was dropped")
	}
	if _, ok := l.Forecast(Key{Account: "50"}, 100, start); ok {
		t.Error("a key that was not used for long was kept")
	}
	for range 1000 {
		l.Observe(key, 1, false, start)
	}
	if n := len(l.cells[key].Value.(*cell).lengths); n != Samples {
		t.Errorf("%d lengths are kept of a key", n)
	}
}
