package quota

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// One a second with a burst of three: three at once, the fourth is refused, and
// one more fits a second later.
func TestGCRAExample(t *testing.T) {
	g := GCRA(Limit{Kind: KindGCRA, Rate: Rate{Amount: 1, Every: time.Second}, Burst: 3}.Bucket())
	arrival, now := int64(0), int64(1_000_000_000)
	for i := range 3 {
		if got := g.Remaining(arrival, now); got != Amount(3-i) {
			t.Fatalf("%d remain before call %d", got, i)
		}
		arrival = g.Move(arrival, now, 0, 1)
	}
	if got, wait := g.Remaining(arrival, now), g.MicrosUntil(arrival, now, 1); got != 0 || wait != 1_000_000 {
		t.Fatalf("%d remain, one fits in %d us", got, wait)
	}
	if got := g.Remaining(arrival, now+1_000_000); got != 1 {
		t.Fatalf("%d remain a second later", got)
	}
}

// GCRA admits what a token bucket of the same parameters admits, but for rounding:
// one microsecond's refill more at most, and one less for each call.
func TestGCRAIsATokenBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limit{Kind: KindBucket, Rate: Rate{
			Amount: Amount(rapid.Int64Range(1, 1_000_000).Draw(t, "amount")),
			Every:  time.Duration(rapid.Int64Range(1000, 100_000_000).Draw(t, "every")) * time.Microsecond,
		}, Burst: Amount(rapid.Int64Range(1, 1_000_000).Draw(t, "burst"))}
		b := l.Bucket()
		l.Kind = KindGCRA
		g := GCRA(l.Bucket())
		level, rest, arrival := b.Capacity, int64(0), int64(0)
		now, at := int64(1_000_000_000), int64(1_000_000_000)
		for calls := int64(1); calls <= 30; calls++ {
			now += rapid.Int64Range(0, 10_000_000).Draw(t, "elapsed")
			level, rest = b.Advance(level, rest, now-at)
			at = now
			remain := g.Remaining(arrival, now)
			micro := g.Refill/Amount(g.PerMicros) + 1
			if remain > level+micro || remain < level-micro*Amount(calls)-1 {
				t.Fatalf("%d remain of GCRA and %d of the bucket after %d calls", remain, level, calls)
			}
			n := Amount(rapid.Int64Range(0, int64(b.Capacity)).Draw(t, "n"))
			if wait := g.MicrosUntil(arrival, now, n); wait > 0 && (g.Remaining(arrival, now+wait) < n || g.Remaining(arrival, now+wait-1) >= n) {
				t.Fatalf("%d fits in %d us: %d remain then, %d before", n, wait, g.Remaining(arrival, now+wait), g.Remaining(arrival, now+wait-1))
			}
			if n > remain || n > level {
				continue
			}
			actual := Amount(rapid.Int64Range(0, int64(n)).Draw(t, "actual"))
			before := arrival
			arrival = g.Move(arrival, now, 0, n)
			if back := g.Move(arrival, now, n, 0); back != max(before, now) {
				t.Fatalf("taking and giving back %d moved %d to %d", n, before, back)
			}
			arrival = g.Move(arrival, now, n, actual)
			level, rest = b.Give(b.Take(level, n), rest, n-actual)
		}
	})
}

// Extremes neither overflow nor give anything away.
func TestGCRABounds(t *testing.T) {
	slow := GCRA{Capacity: MaxAmount, Refill: 1, PerMicros: 86_400_000_000}
	if got := slow.Cost(MaxAmount); got != maxGCRAMicros {
		t.Errorf("cost %d", got)
	}
	fast := GCRA{Capacity: MaxAmount, Refill: MaxAmount, PerMicros: 1000}
	if got := fast.Remaining(0, 0); got != MaxAmount {
		t.Errorf("%d remain of a whole limit", got)
	}
	arrival := fast.Move(0, 0, 0, MaxAmount)
	if got := fast.Remaining(arrival, 0); got != 0 || fast.MicrosUntil(arrival, 0, MaxAmount) != 1000 {
		t.Errorf("%d remain of an empty limit", got)
	}
	small := GCRA{Capacity: 1, Refill: 1, PerMicros: 1000}
	if got := small.Remaining(small.Move(0, 0, 0, MaxAmount), 0); got >= -1_000_000_000_000 {
		t.Errorf("%d remain after an overrun", got)
	}
}
