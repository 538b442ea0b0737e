package quota

import (
	"math"
	"math/bits"
	"time"
)

// Bucket is the arithmetic of a token bucket in exact integers: it refills
// Refill units every PerMicros microseconds and holds at most Capacity units.
//
// Its state is a level and a remainder. The level is in units of the meter,
// from -MaxAmount (debt) to Capacity. The remainder is what the refill has
// earned below one unit, in units of 1/PerMicros, from 0 to PerMicros-1; it is
// carried from step to step, so no fraction is ever lost or invented. A full
// bucket has remainder 0.
type Bucket struct {
	Capacity  Amount // units, 1 to MaxAmount
	Refill    Amount // units every PerMicros; with it in lowest terms
	PerMicros int64  // microseconds; with Refill in lowest terms; 1 to 86,400,000,000
}

// MicrosNever is what [Bucket.MicrosUntil] returns when waiting can't help.
const MicrosNever int64 = math.MaxInt64

// Bucket returns the arithmetic of a limit of [KindBucket], [KindGCRA] or [KindLeakyQueue], with
// the refill reduced to lowest terms. For any other kind, or a limit that
// [NewPolicy] would refuse, it is a bucket that never refills.
func (l Limit) Bucket() Bucket {
	per := int64(l.Rate.Every / time.Microsecond)
	capacity := l.Burst
	if capacity == 0 {
		capacity = l.Rate.Amount
	}
	if !l.Kind.IsLevel() || l.Rate.Amount <= 0 || per <= 0 {
		return Bucket{Capacity: max(capacity, 0), PerMicros: 1}
	}
	divisor := greatestCommonDivisor(int64(l.Rate.Amount), per)
	return Bucket{Capacity: capacity, Refill: l.Rate.Amount / Amount(divisor), PerMicros: per / divisor}
}

func greatestCommonDivisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Advance returns the state of the bucket elapsedMicros later: the level plus
// floor((elapsedMicros*Refill + remainder) / PerMicros), and what that division
// leaves. Where the level reaches Capacity it is Capacity with remainder 0.
// The product is formed in 128 bits, so every elapsed time is exact, and
// advancing twice equals advancing once by the sum.
//
// A negative elapsedMicros counts as 0: a clock that stepped back takes
// nothing away. A remainder outside [0, PerMicros), as left by another rate,
// counts as 0. A level below -MaxAmount counts as -MaxAmount.
func (b Bucket) Advance(level Amount, remainder, elapsedMicros int64) (Amount, int64) {
	level = max(level, -MaxAmount)
	if level >= b.Capacity {
		return b.Capacity, 0
	}
	if b.Refill <= 0 || b.PerMicros <= 0 {
		return level, 0
	}
	if remainder < 0 || remainder >= b.PerMicros {
		remainder = 0
	}
	high, low := bits.Mul64(uint64(max(elapsedMicros, 0)), uint64(b.Refill))
	low, carry := bits.Add64(low, uint64(remainder), 0)
	high += carry // elapsed < 2^63 and refill < 2^63: high is below 2^62
	if high >= uint64(b.PerMicros) {
		return b.Capacity, 0 // at least 2^64 units: more than any capacity
	}
	earned, left := bits.Div64(high, low, uint64(b.PerMicros))
	// The room is positive and at most 2*MaxAmount, so it fits.
	if earned >= uint64(b.Capacity-level) {
		return b.Capacity, 0
	}
	return level + Amount(earned), int64(left)
}

// MicrosUntil returns the smallest whole number of microseconds after which
// [Bucket.Advance] gives a level of at least want, if nothing is taken
// meanwhile. It is 0 when the level is there already, and [MicrosNever] when
// want is above Capacity, the bucket does not refill, or the wait is longer
// than 64 bits of microseconds.
func (b Bucket) MicrosUntil(level Amount, remainder int64, want Amount) int64 {
	level = max(level, -MaxAmount)
	if level >= want {
		return 0
	}
	if want > b.Capacity || b.Refill <= 0 || b.PerMicros <= 0 {
		return MicrosNever
	}
	if remainder < 0 || remainder >= b.PerMicros {
		remainder = 0
	}
	// The wait e is the smallest with e*Refill + remainder >= missing*PerMicros.
	missing := uint64(want) - uint64(level) // exact modulo 2^64; want > level
	high, low := bits.Mul64(missing, uint64(b.PerMicros))
	low, borrow := bits.Sub64(low, uint64(remainder), 0)
	high -= borrow // missing >= 1 and remainder < PerMicros: stays positive
	// Round the division up.
	low, carry := bits.Add64(low, uint64(b.Refill)-1, 0)
	high += carry
	if high >= uint64(b.Refill) {
		return MicrosNever
	}
	wait, _ := bits.Div64(high, low, uint64(b.Refill))
	if wait > math.MaxInt64 {
		return MicrosNever
	}
	return int64(wait)
}

// Take returns the level less amount, which may leave a debt: it stops at
// -MaxAmount. Whether the level covers the amount is the caller's question. A
// negative amount takes nothing.
func (b Bucket) Take(level, amount Amount) Amount {
	level, amount = max(level, -MaxAmount), max(amount, 0)
	if level < amount-MaxAmount { // cannot overflow: amount >= 0
		return -MaxAmount
	}
	return level - amount
}

// GiveBeside is [Bucket.Give] into a bucket in which so much is taken by those who
// start at the instant of the level: what they had and what is left come to the
// capacity at most.
func (b Bucket) GiveBeside(level Amount, remainder int64, amount, booked Amount) (Amount, int64) {
	if booked <= 0 {
		return b.Give(level, remainder, amount)
	}
	most := b.Capacity - booked
	if level >= most {
		return level, remainder
	}
	if max(amount, 0) >= most-max(level, -MaxAmount) {
		return most, 0
	}
	return b.Give(level, remainder, amount)
}

// Give returns the state after amount units came back: the level plus amount,
// or Capacity with remainder 0 where that is less. Advance to the present
// first, so that a refund never displaces refill that was earned before it. A
// negative amount gives nothing.
func (b Bucket) Give(level Amount, remainder int64, amount Amount) (Amount, int64) {
	level, amount = max(level, -MaxAmount), max(amount, 0)
	if level >= b.Capacity || amount >= b.Capacity-level {
		return b.Capacity, 0
	}
	return level + amount, remainder
}
