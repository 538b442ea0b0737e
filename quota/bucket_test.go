package quota_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
)

const day = 24 * time.Hour

// rates are the ones on which doubles fail: $5/min passes 2^53 nano-USD times
// microseconds after 1.8 s.
var rates = map[string]quota.Rate{
	"$5/min":       {Amount: 5_000_000_000, Every: time.Minute},
	"$500/day":     {Amount: 500_000_000_000, Every: day},
	"10M/min":      {Amount: 10_000_000, Every: time.Minute},
	"1/day":        {Amount: 1, Every: day},
	"600/min":      {Amount: 600, Every: time.Minute},
	"7/30s":        {Amount: 7, Every: 30 * time.Second},
	"2^53-1/1ms":   {Amount: quota.MaxAmount, Every: time.Millisecond},
	"2^53-1/day":   {Amount: quota.MaxAmount, Every: day},
	"2^53-2/prime": {Amount: quota.MaxAmount - 1, Every: 86_399_999_981 * time.Microsecond},
}

func bucketOf(rate quota.Rate, burst quota.Amount) quota.Bucket {
	return quota.Limit{Name: "b", Meter: quota.MeterTokens, Kind: quota.KindBucket, Rate: rate, Burst: burst}.Bucket()
}

func TestBucketIsInLowestTerms(t *testing.T) {
	for name, want := range map[string]quota.Bucket{
		"$5/min":   {Capacity: 5_000_000_000, Refill: 250, PerMicros: 3},
		"$500/day": {Capacity: 500_000_000_000, Refill: 625, PerMicros: 108},
		"10M/min":  {Capacity: 10_000_000, Refill: 1, PerMicros: 6},
		"1/day":    {Capacity: 1, Refill: 1, PerMicros: 86_400_000_000},
	} {
		if got := bucketOf(rates[name], 0); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	slots := quota.Limit{Name: "s", Meter: quota.MeterInFlight, Kind: quota.KindSlots, Max: 3}.Bucket()
	if level, remainder := slots.Advance(-5, 0, 1<<40); level != -5 || remainder != 0 {
		t.Errorf("a limit without a rate refilled to %d and %d", level, remainder)
	}
	if wait := slots.MicrosUntil(-5, 0, 0); wait != quota.MicrosNever {
		t.Errorf("a limit without a rate would be refilled in %d us", wait)
	}
}

// A bucket of 10 at 1/s: 10 pass at 0 s, the 11th not; 3 at 3.0 s; at 3.5 s one
// is refused, 0.5 s away; at 60 s one passes and 9 are left.
func TestBucketScenario(t *testing.T) {
	b := bucketOf(quota.Rate{Amount: 1, Every: time.Second}, 10)
	level, remainder, last := b.Capacity, int64(0), int64(0)
	for _, step := range []struct {
		at, passes, wait int64 // wait: until the next unit, after the passes
		left             quota.Amount
	}{
		{at: 0, passes: 10, wait: 1_000_000},
		{at: 3_000_000, passes: 3, wait: 1_000_000},
		{at: 3_500_000, passes: 0, wait: 500_000},
		{at: 60_000_000, passes: 1, left: 9},
	} {
		level, remainder = b.Advance(level, remainder, step.at-last)
		last = step.at
		for range step.passes {
			if level < 1 {
				t.Fatalf("at %d us a call was refused", step.at)
			}
			level = b.Take(level, 1)
		}
		if level != step.left {
			t.Errorf("at %d us %d are left, want %d", step.at, level, step.left)
		}
		if wait := b.MicrosUntil(level, remainder, 1); wait != step.wait {
			t.Errorf("at %d us the next unit is %d us away, want %d", step.at, wait, step.wait)
		}
	}
}

// TestBucketWorkedExample is the demo's: 4,000 of 10,000 leave 6,000; 7,000
// wait 6.0 s; a Refund that used 1,600 of the 4,000 leaves 8,400.
func TestBucketWorkedExample(t *testing.T) {
	b := bucketOf(quota.Rate{Amount: 10_000, Every: time.Minute}, 0)
	level := b.Take(b.Capacity, 4000)
	if level != 6000 {
		t.Fatalf("left %d", level)
	}
	if wait := b.MicrosUntil(level, 0, 7000); wait != 6_000_000 {
		t.Errorf("7,000 wait %d us", wait)
	}
	level, remainder := b.Give(level, 0, 2400)
	if level != 8400 || remainder != 0 {
		t.Errorf("after the refund %d and %d", level, remainder)
	}
}

type state struct {
	bucket    quota.Bucket
	level     quota.Amount
	remainder int64
}

func drawState(t *rapid.T) state {
	rate := rates[rapid.SampledFrom([]string{
		"$5/min", "$500/day", "10M/min", "1/day", "600/min", "7/30s", "2^53-1/1ms", "2^53-1/day", "2^53-2/prime",
	}).Draw(t, "rate")]
	if rapid.Bool().Draw(t, "any rate") {
		rate = quota.Rate{
			Amount: quota.Amount(rapid.Int64Range(1, int64(quota.MaxAmount)).Draw(t, "amount")),
			Every:  time.Duration(rapid.Int64Range(1000, day.Microseconds()).Draw(t, "every")) * time.Microsecond,
		}
	}
	burst := quota.Amount(rapid.Int64Range(1, int64(quota.MaxAmount)).Draw(t, "burst"))
	b := bucketOf(rate, burst)
	s := state{bucket: b, level: quota.Amount(rapid.Int64Range(-int64(quota.MaxAmount), int64(burst)).Draw(t, "level"))}
	if s.level < burst {
		s.remainder = rapid.Int64Range(0, b.PerMicros-1).Draw(t, "remainder")
	}
	return s
}

func drawIdle(t *rapid.T, name string) int64 {
	return rapid.OneOf(
		rapid.Int64Range(0, 1000),
		rapid.Int64Range(1, time.Minute.Microseconds()),
		rapid.Int64Range(1, (400*day).Microseconds()),
	).Draw(t, name)
}

// exact is level + (elapsed*Refill + remainder)/PerMicros, capped, as a
// fraction: the state that a bucket without any rounding would have.
func (s state) exact(elapsed int64) *big.Rat {
	earned := new(big.Int).Mul(big.NewInt(elapsed), big.NewInt(int64(s.bucket.Refill)))
	earned.Add(earned, big.NewInt(s.remainder))
	level := new(big.Rat).SetFrac(earned, big.NewInt(s.bucket.PerMicros))
	level.Add(level, new(big.Rat).SetInt64(int64(s.level)))
	if capacity := new(big.Rat).SetInt64(int64(s.bucket.Capacity)); level.Cmp(capacity) > 0 {
		return capacity
	}
	return level
}

func TestBucketAdvanceAgainstBig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		elapsed := drawIdle(t, "elapsed")
		level, remainder := s.bucket.Advance(s.level, s.remainder, elapsed)
		if remainder < 0 || remainder >= s.bucket.PerMicros || level > s.bucket.Capacity {
			t.Fatalf("%+v after %d: level %d, remainder %d", s, elapsed, level, remainder)
		}
		exact := s.exact(elapsed)
		got := new(big.Rat).SetInt64(int64(level))
		behind := new(big.Rat).Sub(exact, got)
		if behind.Sign() < 0 {
			t.Fatalf("%+v after %d: %d is in the caller's favour of %s", s, elapsed, level, exact.FloatString(12))
		}
		if behind.Cmp(big.NewRat(1, 1)) >= 0 {
			t.Fatalf("%+v after %d: %d is a unit or more below %s", s, elapsed, level, exact.FloatString(12))
		}
		// With the remainder nothing is lost at all.
		if behind.Cmp(big.NewRat(remainder, s.bucket.PerMicros)) != 0 {
			t.Fatalf("%+v after %d: remainder %d, want %s", s, elapsed, remainder, behind)
		}
	})
}

func TestBucketAdvanceComposes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		level, remainder, total := s.level, s.remainder, int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			elapsed := drawIdle(t, "elapsed")
			level, remainder = s.bucket.Advance(level, remainder, elapsed)
			total += elapsed
		}
		onceLevel, onceRemainder := s.bucket.Advance(s.level, s.remainder, total)
		if level != onceLevel || remainder != onceRemainder {
			t.Fatalf("%+v: in steps %d and %d, at once %d and %d", s, level, remainder, onceLevel, onceRemainder)
		}
	})
}

func TestBucketMicrosUntilIsTheFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		want := quota.Amount(rapid.Int64Range(-int64(quota.MaxAmount), int64(s.bucket.Capacity)).Draw(t, "want"))
		wait := s.bucket.MicrosUntil(s.level, s.remainder, want)
		if s.level >= want {
			if wait != 0 {
				t.Fatalf("%+v: %d waits %d though it is there", s, want, wait)
			}
			return
		}
		if wait == quota.MicrosNever { // truly longer than 64 bits
			if level, _ := s.bucket.Advance(s.level, s.remainder, quota.MicrosNever); level >= want {
				t.Fatalf("%+v: %d is never there, but is %d", s, want, level)
			}
			return
		}
		if level, _ := s.bucket.Advance(s.level, s.remainder, wait); level < want {
			t.Fatalf("%+v: after %d us only %d of %d", s, wait, level, want)
		}
		if level, _ := s.bucket.Advance(s.level, s.remainder, wait-1); level >= want {
			t.Fatalf("%+v: after %d us already %d of %d", s, wait-1, level, want)
		}
		if above := s.bucket.MicrosUntil(s.level, s.remainder, s.bucket.Capacity+1); above != quota.MicrosNever {
			t.Fatalf("%+v: above the capacity waits %d", s, above)
		}
	})
}

// Over any run of takes that the level covered, a bucket admits at most its
// capacity plus what the span refills.
func TestBucketNeverOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		b := s.bucket
		level, remainder := b.Capacity, int64(0)
		admitted, elapsed := new(big.Int), int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			idle := drawIdle(t, "idle")
			elapsed += idle
			level, remainder = b.Advance(level, remainder, idle)
			ask := quota.Amount(rapid.Int64Range(0, int64(b.Capacity)).Draw(t, "ask"))
			if ask <= level {
				level = b.Take(level, ask)
				admitted.Add(admitted, big.NewInt(int64(ask)))
			}
		}
		bound := new(big.Int).Mul(big.NewInt(elapsed), big.NewInt(int64(b.Refill)))
		bound.Quo(bound, big.NewInt(b.PerMicros))
		bound.Add(bound, big.NewInt(int64(b.Capacity)))
		if admitted.Cmp(bound) > 0 {
			t.Fatalf("%+v admitted %s of %s in %d us", b, admitted, bound, elapsed)
		}
	})
}

func TestBucketEdges(t *testing.T) {
	b := bucketOf(rates["$5/min"], quota.MaxAmount)
	if level, remainder := b.Advance(-quota.MaxAmount, 0, math.MaxInt64); level != quota.MaxAmount || remainder != 0 {
		t.Errorf("after 292,000 years: %d and %d", level, remainder)
	}
	if level, remainder := b.Advance(5, 2, -1); level != 5 || remainder != 2 {
		t.Errorf("a clock that stepped back: %d and %d", level, remainder)
	}
	if level, remainder := b.Advance(5, b.PerMicros, 0); level != 5 || remainder != 0 {
		t.Errorf("a remainder of another rate: %d and %d", level, remainder)
	}
	if level, remainder := b.Advance(math.MinInt64, -1, 0); level != -quota.MaxAmount || remainder != 0 {
		t.Errorf("a level below all debt: %d and %d", level, remainder)
	}
	small := bucketOf(rates["600/min"], 600)
	if level, remainder := small.Advance(1000, 5, 1); level != 600 || remainder != 0 {
		t.Errorf("a level above a lowered capacity: %d and %d", level, remainder)
	}
	for _, c := range []struct{ level, amount, want quota.Amount }{
		{10, 4, 6},
		{10, 14, -4},
		{-5, 3, -8},
		{-quota.MaxAmount, 1, -quota.MaxAmount},
		{-quota.MaxAmount + 1, 5, -quota.MaxAmount},
		{0, quota.MaxAmount, -quota.MaxAmount},
		{0, math.MaxInt64, -quota.MaxAmount},
		{math.MinInt64, math.MaxInt64, -quota.MaxAmount},
		{quota.MaxAmount, quota.MaxAmount, 0},
		{10, -4, 10},
	} {
		if got := small.Take(c.level, c.amount); got != c.want {
			t.Errorf("%d less %d is %d, want %d", c.level, c.amount, got, c.want)
		}
	}
	for _, c := range []struct {
		level     quota.Amount
		remainder int64
		amount    quota.Amount
		want      quota.Amount
		left      int64
	}{
		{10, 7, 4, 14, 7},
		{598, 7, 2, 600, 0},
		{598, 7, 3, 600, 0},
		{-4, 7, 3, -1, 7},
		{10, 7, -4, 10, 7},
		{math.MinInt64, 7, math.MaxInt64, 600, 0},
	} {
		if level, remainder := small.Give(c.level, c.remainder, c.amount); level != c.want || remainder != c.left {
			t.Errorf("%d plus %d is %d and %d, want %d and %d", c.level, c.amount, level, remainder, c.want, c.left)
		}
	}
}
