package quota

import "math"

// GCRA is the generic cell rate algorithm (ITU-T I.371, annex A) with weights, in
// exact integers. It says what a token bucket of the same parameters says, and its
// whole state is one instant, the theoretical arrival time: when the limit would
// be whole again if nothing more came.
//
// A call of n units moves that instant by [GCRA.Cost] of n, from the present or
// from where it stands, whichever is later; it fits when the instant is then at
// most the cost of the whole capacity away. Both costs are rounded up to a
// microsecond. So in any span T at most the capacity, and what is refilled in T and
// one microsecond more, are admitted; and where calls are small, less than the
// bucket would admit, by up to a microsecond's refill a call.
type GCRA Bucket

// maxGCRAMicros bounds how far the theoretical arrival time may be from the
// present: 2^52 microseconds, some 142 years. [Limit.Validate] refuses limits
// whose capacity takes longer to refill.
const maxGCRAMicros int64 = 1 << 52

// Cost returns how long n units take to refill: n*PerMicros/Refill microseconds,
// rounded up, at most 2^52. It is 0 for n below 1.
func (g GCRA) Cost(n Amount) int64 {
	if n <= 0 {
		return 0
	}
	if g.Refill <= 0 {
		return maxGCRAMicros
	}
	cost, ok := MulDivUp(uint64(n), uint64(g.PerMicros), uint64(g.Refill))
	if !ok {
		return maxGCRAMicros
	}
	return int64(min(cost, uint64(maxGCRAMicros)))
}

// Remaining returns what a call could take at now, where the theoretical arrival
// time is arrival: negative while the limit is in debt.
func (g GCRA) Remaining(arrival, now int64) Amount {
	room := g.Cost(g.Capacity) - g.wait(arrival, now)
	if room < 0 {
		debt, ok := MulDivUp(uint64(-room), uint64(g.Refill), uint64(g.PerMicros))
		if !ok {
			return -MaxAmount
		}
		return -Amount(min(debt, uint64(MaxAmount)))
	}
	n, ok := mulDivDown(uint64(room), uint64(g.Refill), uint64(g.PerMicros))
	if !ok {
		return g.Capacity
	}
	return Amount(min(n, uint64(g.Capacity)))
}

// Move returns the theoretical arrival time after what a call has cost so far was
// brought from one amount to another: 0 to n takes, n to less gives back. It is
// never before now, as a limit is never more than whole, and at most 2^52
// microseconds after it.
func (g GCRA) Move(arrival, now int64, from, to Amount) int64 {
	return now + min(max(g.wait(arrival, now)+g.Cost(to)-g.Cost(from), 0), maxGCRAMicros)
}

// Shift returns the theoretical arrival time after so many units more were taken,
// or given back when the difference is negative. Where a hold is given back in
// parts, rounding makes nothing: what is taken is rounded up, what is given back
// down.
func (g GCRA) Shift(arrival, now int64, difference Amount) int64 {
	if difference >= 0 {
		return g.Move(arrival, now, 0, difference)
	}
	if g.Refill <= 0 {
		return arrival
	}
	back := maxGCRAMicros
	if exact, ok := mulDivDown(uint64(-difference), uint64(g.PerMicros), uint64(g.Refill)); ok {
		back = int64(min(exact, uint64(maxGCRAMicros)))
	}
	return now + max(g.wait(arrival, now)-back, 0)
}

// Beside bounds what a give-back made of an arrival time, where those who start at
// now cost booked microseconds: what they had and what is left come to the capacity at
// most.
func (g GCRA) Beside(before, after, now, booked int64) int64 {
	return max(after, now+min(g.wait(before, now), booked))
}

// MicrosUntil returns the smallest whole number of microseconds after which
// [GCRA.Remaining] is at least want, if nothing is taken meanwhile;
// [MicrosNever] for more than the capacity.
func (g GCRA) MicrosUntil(arrival, now int64, want Amount) int64 {
	if want > g.Capacity || g.Refill <= 0 {
		return MicrosNever
	}
	return max(g.wait(arrival, now)+g.Cost(want)-g.Cost(g.Capacity), 0)
}

// wait is how far ahead the theoretical arrival time is.
func (g GCRA) wait(arrival, now int64) int64 {
	if arrival <= now {
		return 0
	}
	if now < 0 && arrival > math.MaxInt64+now {
		return maxGCRAMicros
	}
	return min(arrival-now, maxGCRAMicros)
}
