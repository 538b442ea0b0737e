package quota_test

import (
	"errors"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
)

func TestAmountArithmeticAgainstBig(t *testing.T) {
	edge := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{0, 1, -1, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1}))
	rapid.Check(t, func(t *rapid.T) {
		a, b := edge.Draw(t, "a"), edge.Draw(t, "b")
		check := func(name string, got int64, err error, want *big.Int) {
			if want.IsInt64() {
				if err != nil || got != want.Int64() {
					t.Fatalf("%d %s %d: %d, %v", a, name, b, got, err)
				}
			} else if !errors.Is(err, quota.ErrOverflow) {
				t.Fatalf("%d %s %d: %d without an overflow", a, name, b, got)
			}
		}
		x, y := big.NewInt(a), big.NewInt(b)
		sum, err := quota.Amount(a).Add(quota.Amount(b))
		check("plus", int64(sum), err, new(big.Int).Add(x, y))
		difference, err := quota.Amount(a).Sub(quota.Amount(b))
		check("minus", int64(difference), err, new(big.Int).Sub(x, y))
		tokens, err := quota.Tokens(a).Add(quota.Tokens(b))
		check("plus", int64(tokens), err, new(big.Int).Add(x, y))
		money, err := quota.NanoUSD(a).Add(quota.NanoUSD(b))
		check("plus", int64(money), err, new(big.Int).Add(x, y))
		if err := quota.Amount(a).Check(); (err == nil) != (a >= 0 && a <= 1<<53-1) || err != nil && !errors.Is(err, quota.ErrOutOfRange) {
			t.Fatalf("check of %d: %v", a, err)
		}
	})
}

func TestNanoUSDString(t *testing.T) {
	for money, want := range map[quota.NanoUSD]string{
		0:               "$0.00",
		2_340_000:       "$0.00234",
		5_000_000_000:   "$5.00",
		-1_500_000_000:  "-$1.50",
		1:               "$0.000000001",
		math.MaxInt64:   "$9223372036.854775807",
		math.MinInt64:   "-$9223372036.854775808",
		123_456_000_000: "$123.456",
	} {
		if got := money.String(); got != want {
			t.Errorf("%d: %s, want %s", int64(money), got, want)
		}
	}
}
