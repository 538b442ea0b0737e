package quota

import "math/bits"

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
