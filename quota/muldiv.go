package quota

import (
	"cmp"
	"math/bits"
)

// mulDivDown returns a*b/c, rounded down; ok is false where that has more than 64 bits.
// The product is formed in 128 bits. c is above 0.
func mulDivDown(a, b, c uint64) (quotient uint64, ok bool) {
	high, low := bits.Mul64(a, b)
	if high >= c {
		return 0, false
	}
	quotient, _ = bits.Div64(high, low, c)
	return quotient, true
}

// CompareProducts returns -1, 0 or 1 as a*b is less than, equal to or above c*d, exactly.
func CompareProducts(a, b, c, d uint64) int {
	high, low := bits.Mul64(a, b)
	otherHigh, otherLow := bits.Mul64(c, d)
	return cmp.Or(cmp.Compare(high, otherHigh), cmp.Compare(low, otherLow))
}

// Times returns so many times the amount; ok is false where that is above [MaxAmount].
// Neither may be negative.
func (a Amount) Times(factor Amount) (product Amount, ok bool) {
	high, low := bits.Mul64(uint64(a), uint64(factor))
	return Amount(low), high == 0 && low <= uint64(MaxAmount)
}

// MulDivUp returns a*b/c, rounded up; ok is false where that has more than 64 bits. The
// product is formed in 128 bits. c is above 0.
func MulDivUp(a, b, c uint64) (quotient uint64, ok bool) {
	high, low := bits.Mul64(a, b)
	low, carry := bits.Add64(low, c-1, 0)
	high += carry // a product's high half is at most 2^64-2
	if high >= c {
		return 0, false
	}
	quotient, _ = bits.Div64(high, low, c)
	return quotient, true
}
