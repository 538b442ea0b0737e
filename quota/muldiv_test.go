package quota

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestProductsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
		a, b, c, d := draw("a"), draw("b"), draw("c"), draw("d")
		if rapid.Bool().Draw(t, "swapped") {
			c, d = b, a // equal
		}
		product := func(a, b uint64) *big.Int {
			return new(big.Int).Mul(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
		}
		if got, want := CompareProducts(a, b, c, d), product(a, b).Cmp(product(c, d)); got != want {
			t.Errorf("%d*%d against %d*%d: %d, want %d", a, b, c, d, got, want)
		}
		x, y := Amount(rapid.Int64Range(0, int64(MaxAmount)).Draw(t, "amount")), Amount(rapid.Int64Range(0, 1<<20).Draw(t, "factor"))
		want := product(uint64(x), uint64(y))
		got, ok := x.Times(y)
		if fits := want.Cmp(big.NewInt(int64(MaxAmount))) <= 0; ok != fits || ok && big.NewInt(int64(got)).Cmp(want) != 0 {
			t.Errorf("%d times %d: %d, %v; want %v", x, y, got, ok, want)
		}
	})
}
