package replay

import (
	"math"
	"math/bits"
)

// scale is ceil(a * b / c) for a and b from 0 and c from 1, or the largest int64
// where that is more.
func scale(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	low, carry := bits.Add64(low, uint64(c-1), 0)
	high += carry
	if high >= uint64(c) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, uint64(c))
	return int64(min(quotient, math.MaxInt64))
}
