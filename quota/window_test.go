package quota

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// spent is what one call has taken of a window, as the tests remember it.
type spent struct {
	at     int64
	amount Amount
}

// countedNow adds up by the definition of the kind, in rationals.
func countedNow(w Window, calls []spent, now int64) *big.Rat {
	sum := new(big.Rat)
	start := now / w.Length * w.Length
	for _, c := range calls {
		weight := new(big.Rat)
		switch {
		case w.Kind == KindSlidingLog && c.at+w.Length > now,
			w.Kind != KindSlidingLog && c.at >= start:
			weight.SetInt64(1)
		case w.Kind == KindSlidingCounter && c.at >= start-w.Length:
			weight.SetFrac64(w.Length-(now-start), w.Length)
		}
		sum.Add(sum, weight.Mul(weight, new(big.Rat).SetInt64(int64(c.amount))))
	}
	return sum
}

// roomFor says whether want fits by the definition.
func roomFor(w Window, calls []spent, now int64, want Amount) bool {
	sum := countedNow(w, calls, now)
	return sum.Add(sum, new(big.Rat).SetInt64(int64(want))).Cmp(new(big.Rat).SetInt64(int64(w.Max))) <= 0
}

// firstUseCalls drops what a fixed window from the first use has not got any more.
func firstUseCalls(w Window, calls []spent, now int64) []spent {
	if len(calls) > 0 && now >= calls[0].at+w.Length {
		return nil
	}
	return calls
}

// Windows agree with their definitions, added up call by call in rationals, in any
// order of calls, corrections and time, and MicrosUntil is the first microsecond at
// which the amount fits.
func TestWindowsAgreeWithTheirDefinitions(t *testing.T) {
	for _, kind := range []Kind{KindFixedWindow, KindSlidingCounter, KindSlidingLog} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := Window{
					Kind: kind, Max: Amount(rapid.IntRange(1, 30).Draw(t, "max")),
					Length: rapid.Int64Range(1, 40).Draw(t, "length"), Calendar: kind == KindFixedWindow,
				}
				var u Counted
				var calls []spent
				now := rapid.Int64Range(0, 100).Draw(t, "start")
				for range rapid.IntRange(1, 40).Draw(t, "steps") {
					now += rapid.Int64Range(0, 25).Draw(t, "elapsed")
					u = w.Advance(u, now)
					want := Amount(rapid.IntRange(1, 30).Draw(t, "want"))
					wait := w.MicrosUntil(u, now, want)
					for e := range 2*w.Length + 1 {
						if fits := roomFor(w, calls, now+e, want); fits != (e >= wait) {
							t.Fatalf("%d us after %d: %d fits by definition: %v; MicrosUntil says %d", e, now, want, fits, wait)
						}
					}
					if fits := roomFor(w, calls, now, want); fits != (want <= w.Remaining(u, now)) {
						t.Fatalf("at %d: %d fits by definition: %v; %d remain", now, want, fits, w.Remaining(u, now))
					}
					if ends := w.EmptyAt(u); (countedNow(w, calls, now).Sign() == 0) != (ends == 0) ||
						ends != 0 && (countedNow(w, calls, ends).Sign() != 0 || countedNow(w, calls, ends-1).Sign() == 0) {
						t.Fatalf("at %d: %v counts, and it is empty at %d", now, countedNow(w, calls, now), ends)
					}
					if len(calls) > 0 && rapid.Bool().Draw(t, "correct") {
						i := rapid.IntRange(0, len(calls)-1).Draw(t, "which")
						to := Amount(rapid.IntRange(0, 40).Draw(t, "actual"))
						u = w.Correct(u, to-calls[i].amount, calls[i].at, now)
						calls[i].amount = to
						continue
					}
					var at int64
					u, at = w.Take(u, want, now)
					if at != now {
						t.Fatalf("taken at %d, counted at %d", now, at)
					}
					calls = append(calls, spent{at, want})
				}
			})
		})
	}
}

// A fixed window from the first use begins with the first call after the last one
// ended.
func TestFixedWindowFromFirstUse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := Window{Kind: KindFixedWindow, Max: 10, Length: rapid.Int64Range(1, 20).Draw(t, "length")}
		var u Counted
		var calls []spent
		now := rapid.Int64Range(0, 100).Draw(t, "start")
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += rapid.Int64Range(0, 15).Draw(t, "elapsed")
			calls = firstUseCalls(w, calls, now)
			u = w.Advance(u, now)
			var sum Amount
			for _, c := range calls {
				sum += c.amount
			}
			if got := w.Max - w.Remaining(u, now); got != sum {
				t.Fatalf("at %d: %d counted, want %d", now, got, sum)
			}
			if sum > 0 && w.MicrosUntil(u, now, 10) != calls[0].at+w.Length-now {
				t.Fatalf("at %d: all fits in %d us, but the span began at %d", now, w.MicrosUntil(u, now, 10), calls[0].at)
			}
			amount := Amount(rapid.IntRange(1, 10).Draw(t, "amount"))
			u, _ = w.Take(u, amount, now)
			calls = append(calls, spent{now, amount})
		}
	})
}

// The example of the sliding counter: 80 taken a span ago of which 0.6 still
// weigh, and 30 taken now, are 78 of 100.
func TestSlidingCounterExample(t *testing.T) {
	w := Limit{Kind: KindSlidingCounter, Rate: Rate{Amount: 100, Every: 10 * time.Second}}.Window()
	second := time.Second.Microseconds()
	u, _ := w.Take(Counted{}, 80, 5*second)
	u, _ = w.Take(u, 30, 14*second)
	if got := w.Remaining(w.Advance(u, 14*second), 14*second); got != 22 {
		t.Fatalf("%d remain, want 100 - (80*0.6 + 30) = 22", got)
	}
}

// A clock that stepped back takes nothing away and gives nothing twice, and what
// was taken meanwhile can still be given back.
func TestWindowsWhenTheClockStepsBack(t *testing.T) {
	for _, kind := range []Kind{KindFixedWindow, KindSlidingCounter, KindSlidingLog} {
		w := Window{Kind: kind, Max: 10, Length: 1000, Calendar: kind == KindFixedWindow}
		u, _ := w.Take(Counted{}, 4, 5000)
		u, at := w.Take(u, 3, 3500)
		if got := w.Remaining(w.Advance(u, 3500), 3500); got != 3 {
			t.Errorf("kind %d: %d remain, want 3", kind, got)
		}
		u = w.Correct(u, -3, at, 3600)
		if got := w.Remaining(w.Advance(u, 5000), 5000); got != 6 {
			t.Errorf("kind %d: %d remain after the refund, want 6", kind, got)
		}
	}
}

// A changed length keeps what is meaningful.
func TestWindowsOfAnotherLength(t *testing.T) {
	for _, c := range []struct {
		kind        Kind
		to          int64
		at          int64
		wantCounted Amount
	}{
		{KindFixedWindow, 10_000, 5_500, 4},    // longer: the span that began at 5,000 goes on
		{KindFixedWindow, 10_000, 6_000, 0},    // longer, but the old span has ended
		{KindFixedWindow, 100, 5_050, 4},       // shorter, and it has not passed since 5,000
		{KindFixedWindow, 100, 5_500, 0},       // shorter, and it has
		{KindSlidingCounter, 10_000, 5_500, 4}, // the estimate
		{KindSlidingCounter, 10_000, 6_500, 2},
		{KindSlidingLog, 10_000, 5_500, 4},
		{KindSlidingLog, 10_000, 6_000, 0},
		{KindSlidingLog, 100, 5_099, 4},
		{KindSlidingLog, 100, 5_100, 0},
	} {
		old := Window{Kind: c.kind, Max: 10, Length: 1000, Calendar: c.kind == KindFixedWindow}
		u, _ := old.Take(Counted{}, 4, 5000)
		w := old
		w.Length = c.to
		if got := w.Max - w.Remaining(w.Advance(u, c.at), c.at); got != c.wantCounted {
			t.Errorf("kind %d to %d at %d: %d counted, want %d", c.kind, c.to, c.at, got, c.wantCounted)
		}
	}
}

// A log is bounded however many calls it counts, and never forgets early.
func TestSlidingLogIsBounded(t *testing.T) {
	w := Window{Kind: KindSlidingLog, Max: MaxLogUnits, Length: 1_000_000}
	var u Counted
	for i := range int64(3 * MaxLogUnits) {
		u = w.Correct(u, 1, i, i)
	}
	if len(u.Log) != MaxLogUnits || w.Remaining(u, 3*MaxLogUnits) != -2*MaxLogUnits {
		t.Fatalf("%d entries, %d remain", len(u.Log), w.Remaining(u, 3*MaxLogUnits))
	}
	u = w.Correct(u, -1, 0, 3*MaxLogUnits) // merged into a younger one
	if w.Remaining(u, 3*MaxLogUnits) != -2*MaxLogUnits+1 {
		t.Fatalf("%d remain after one more came back", w.Remaining(u, 3*MaxLogUnits))
	}
}
