package quota

import (
	"testing"

	"pgregory.net/rapid"
)

// What comes back to a bucket is bounded by what starts at the instant of its level:
// nothing is taken, and together they come to the capacity at most, unless they came to
// more before.
func TestGiveBeside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bucket{Capacity: Amount(rapid.Int64Range(1, 30).Draw(t, "capacity")), Refill: 1, PerMicros: 7}
		level := Amount(rapid.Int64Range(-40, int64(b.Capacity)).Draw(t, "level"))
		rest := rapid.Int64Range(0, 6).Draw(t, "rest")
		if level == b.Capacity {
			rest = 0
		}
		amount := Amount(rapid.Int64Range(0, 60).Draw(t, "amount"))
		booked := Amount(rapid.Int64Range(0, 60).Draw(t, "booked"))
		after, afterRest := b.GiveBeside(level, rest, amount, booked)
		want := max(level, min(level+amount, b.Capacity-booked))
		if after != want || afterRest != 0 && afterRest != rest || after == b.Capacity-booked && after > level && afterRest != 0 {
			t.Fatalf("%d + %d/7 with %d back beside %d of %d: %d + %d/7, want %d", level, rest, amount, booked, b.Capacity, after, afterRest, want)
		}
	})
}

// Of a GCRA the same, in microseconds.
func TestGCRABeside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := GCRA{Capacity: 10, Refill: 1, PerMicros: 5}
		now := rapid.Int64Range(0, 100).Draw(t, "now")
		before := rapid.Int64Range(0, 200).Draw(t, "arrival")
		back := Amount(rapid.Int64Range(0, 20).Draw(t, "amount"))
		booked := rapid.Int64Range(0, 80).Draw(t, "booked")
		after := g.Beside(before, g.Move(before, now, back, 0), now, booked)
		if want := max(now, min(before, now+booked), before-g.Cost(back)); after != want {
			t.Fatalf("at %d: %d with %d back beside %d us: %d, want %d", now, before, back, booked, after, want)
		}
	})
}
