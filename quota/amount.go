package quota

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Amount is a count of one meter's unit: calls, tokens, nano-USD, slots or a
// custom unit. Which one, the [Meter] beside it says.
type Amount int64

// Tokens is a count of model tokens.
type Tokens int64

// NanoUSD is money in units of 1e-9 US dollar.
type NanoUSD int64

// MaxAmount is the largest amount that a limit, a request or a usage may name:
// 2^53-1, the largest integer that a Lua number (an IEEE double) counts
// exactly. A configured limit above it is refused when it is read.
const MaxAmount Amount = 1<<53 - 1

// OneUSD is one US dollar in nano-USD.
const OneUSD NanoUSD = 1_000_000_000

// ErrOverflow says that a sum or product left the range of its type. The
// operands are unchanged.
var ErrOverflow = errors.New("amount overflows")

// ErrOutOfRange says that an amount is negative or above [MaxAmount].
var ErrOutOfRange = errors.New("amount out of range")

// Check returns an error that wraps [ErrOutOfRange] unless 0 <= a <= MaxAmount.
func (a Amount) Check() error {
	if a < 0 || a > MaxAmount {
		return fmt.Errorf("%w: %d is not between 0 and %d", ErrOutOfRange, int64(a), int64(MaxAmount))
	}
	return nil
}

// Add returns a+b, or [ErrOverflow] when the sum leaves 64 bits.
func (a Amount) Add(b Amount) (Amount, error) {
	if (b > 0 && a > math.MaxInt64-b) || (b < 0 && a < math.MinInt64-b) {
		return 0, ErrOverflow
	}
	return a + b, nil
}

// Sub returns a-b, or [ErrOverflow] when the difference leaves 64 bits.
func (a Amount) Sub(b Amount) (Amount, error) {
	if (b < 0 && a > math.MaxInt64+b) || (b > 0 && a < math.MinInt64+b) {
		return 0, ErrOverflow
	}
	return a - b, nil
}

// Add returns t+u, or [ErrOverflow] when the sum leaves 64 bits.
func (t Tokens) Add(u Tokens) (Tokens, error) {
	sum, err := Amount(t).Add(Amount(u))
	return Tokens(sum), err
}

// Amount returns the same count as an amount of a token meter.
func (t Tokens) Amount() Amount { return Amount(t) }

// Add returns m+n, or [ErrOverflow] when the sum leaves 64 bits.
func (m NanoUSD) Add(n NanoUSD) (NanoUSD, error) {
	sum, err := Amount(m).Add(Amount(n))
	return NanoUSD(sum), err
}

// Amount returns the same sum as an amount of the cost meter.
func (m NanoUSD) Amount() Amount { return Amount(m) }

// String formats the money exactly, in dollars, without trailing zeros but
// with at least two decimals: "$0.00234", "$5.00", "-$1.50".
func (m NanoUSD) String() string {
	sign, magnitude := "", uint64(m)
	if m < 0 {
		sign, magnitude = "-", -magnitude
	}
	whole := strconv.FormatUint(magnitude/uint64(OneUSD), 10)
	fraction := fmt.Sprintf("%09d", magnitude%uint64(OneUSD))
	end := len(fraction)
	for end > 2 && fraction[end-1] == '0' {
		end--
	}
	return sign + "$" + whole + "." + fraction[:end]
}
