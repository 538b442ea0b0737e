package estimator

import (
	"errors"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
)

const usd = PerMillion(quota.OneUSD)

func TestCost(t *testing.T) {
	sonnet := Price{Base: Rates{Input: 3 * usd, CacheRead: usd * 3 / 10, CacheWrite: usd * 15 / 4, CacheWrite1h: 6 * usd, Output: 15 * usd, Reasoning: 15 * usd}}
	tiered := Price{
		Base:  Rates{Input: 1 * usd, CacheRead: usd, CacheWrite: usd, CacheWrite1h: usd, Output: 2 * usd, Reasoning: 2 * usd},
		Tiers: []Tier{{Above: 1000, Rates: Rates{Input: 2 * usd, CacheRead: 2 * usd, CacheWrite: 2 * usd, CacheWrite1h: 2 * usd, Output: 3 * usd, Reasoning: 3 * usd}}},
	}
	for _, tt := range []struct {
		name    string
		price   Price
		classes TokenClasses
		want    quota.NanoUSD
	}{
		{"1,000 input of which 800 cached, 100 output", sonnet, TokenClasses{Input: 200, CacheRead: 800, Output: 100}, 2_340_000},
		{"nothing", sonnet, TokenClasses{}, 0},
		{"writes to both caches", sonnet, TokenClasses{CacheWrite: 100, CacheWrite1h: 100}, 375_000 + 600_000},
		{"reasoning is output", sonnet, TokenClasses{Reasoning: 100}, 1_500_000},
		{"rounded up once: 1 + 1 + 1 thirds", Price{Base: Rates{Input: 333_333, Output: 333_333, Reasoning: 333_334}}, TokenClasses{Input: 1, Output: 1, Reasoning: 1}, 1},
		{"rounded up: one millionth over", Price{Base: Rates{Input: 1_000_001}}, TokenClasses{Input: 1}, 2},
		{"at the tier's bound", tiered, TokenClasses{Input: 900, CacheRead: 100, Output: 10}, 1_000_000 + 20_000},
		{"a token above it, of any input class: the whole call", tiered, TokenClasses{Input: 900, CacheRead: 101, Output: 10}, 2_002_000 + 30_000},
	} {
		if got, err := tt.price.Cost(tt.classes); err != nil || got != tt.want {
			t.Errorf("%s: %d, %v; want %d", tt.name, got, err, tt.want)
		}
	}
}

func TestCostRefuses(t *testing.T) {
	most := quota.Tokens(quota.MaxAmount)
	dear := Price{Base: Rates{Input: MaxPerMillion, Output: MaxPerMillion}}
	if _, err := dear.Cost(TokenClasses{Input: most}); !errors.Is(err, quota.ErrOverflow) {
		t.Errorf("2^53-1 tokens at $1,000: %v, want overflow", err)
	}
	if _, err := dear.Cost(TokenClasses{Input: most / 1000}); err != nil {
		t.Errorf("2^43 tokens at $1,000: %v, want a cost", err)
	}
	for name, classes := range map[string]TokenClasses{
		"negative": {Input: -1}, "above 2^53-1": {Output: most + 1}, "sum above 2^53-1": {Input: most, CacheRead: 1},
	} {
		var call *CallError
		if _, err := dear.Cost(classes); !errors.As(err, &call) {
			t.Errorf("%s: %v, want a CallError", name, err)
		}
	}
	if _, err := (Price{Base: Rates{Input: -1}}).Cost(TokenClasses{Input: 1}); !errors.Is(err, ErrCatalogue) {
		t.Errorf("negative price: %v", err)
	}
}

// Exact rational arithmetic is the truth.
func TestCostEqualsBigRat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, 10_000_000), rapid.Int64Range(0, int64(quota.MaxAmount)/4))
		price := rapid.OneOf(rapid.Int64Range(0, 3_000_000), rapid.Int64Range(0, int64(MaxPerMillion)))
		var n, p [6]int64
		sum := new(big.Int)
		for i := range n {
			n[i], p[i] = count.Draw(t, "tokens"), price.Draw(t, "price")
			sum.Add(sum, new(big.Int).Mul(big.NewInt(n[i]), big.NewInt(p[i])))
		}
		want, rest := new(big.Int).QuoRem(sum, big.NewInt(1_000_000), new(big.Int))
		if rest.Sign() > 0 {
			want.Add(want, big.NewInt(1))
		}
		got, err := Price{Base: Rates{PerMillion(p[0]), PerMillion(p[1]), PerMillion(p[2]), PerMillion(p[3]), PerMillion(p[4]), PerMillion(p[5])}}.Cost(
			TokenClasses{quota.Tokens(n[0]), quota.Tokens(n[1]), quota.Tokens(n[2]), quota.Tokens(n[3]), quota.Tokens(n[4]), quota.Tokens(n[5])})
		total := n[0] + n[1] + n[2] + n[3]
		switch {
		case total > int64(quota.MaxAmount):
			if err == nil {
				t.Fatalf("input of %d tokens was priced", total)
			}
		case !want.IsInt64():
			if !errors.Is(err, quota.ErrOverflow) {
				t.Fatalf("cost %s gave %d, %v", want, got, err)
			}
		case err != nil || int64(got) != want.Int64():
			t.Fatalf("%d, %v; want %s", got, err, want)
		}
	})
}

// At the edge of 64 bits the division and the rounding may not wrap.
func TestCostAtTheEdgeOf64Bits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Lines that sum to just about MaxInt64 or MaxUint64 nano-USD.
		target := new(big.Int).SetUint64(rapid.SampledFrom([]uint64{math.MaxInt64, math.MaxUint64}).Draw(t, "edge"))
		target.Mul(target, big.NewInt(1_000_000))
		target.Add(target, big.NewInt(rapid.Int64Range(-3_000_000, 3_000_000).Draw(t, "offset")))
		sum := new(big.Int)
		var lines []line
		for left := new(big.Int).Set(target); left.Sign() > 0; left.Sub(target, sum) {
			price := big.NewInt(int64(MaxPerMillion))
			tokens := new(big.Int).Quo(left, price)
			if tokens.Sign() == 0 {
				price, tokens = left, big.NewInt(1)
			}
			if tokens.Cmp(big.NewInt(int64(quota.MaxAmount))) > 0 {
				tokens = big.NewInt(int64(quota.MaxAmount))
			}
			lines = append(lines, line{quota.Tokens(tokens.Int64()), PerMillion(price.Int64())})
			sum.Add(sum, new(big.Int).Mul(tokens, price))
		}
		want, rest := new(big.Int).QuoRem(target, big.NewInt(1_000_000), new(big.Int))
		if rest.Sign() > 0 {
			want.Add(want, big.NewInt(1))
		}
		got, err := sumRoundedUp(lines...)
		if want.IsInt64() {
			if err != nil || int64(got) != want.Int64() {
				t.Fatalf("%d, %v; want %s", got, err, want)
			}
		} else if !errors.Is(err, quota.ErrOverflow) {
			t.Fatalf("%d, %v; want overflow of %s", got, err, want)
		}
	})
}
