package estimator

import (
	"errors"
	"math"
	"math/big"
	"strings"
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
		if got, err := tt.price.Cost(Use{Tokens: tt.classes}); err != nil || got != tt.want {
			t.Errorf("%s: %d, %v; want %d", tt.name, got, err, tt.want)
		}
	}
}

func TestCostRefuses(t *testing.T) {
	most := quota.Tokens(quota.MaxAmount)
	dear := Price{Base: Rates{Input: MaxPerMillion, Output: MaxPerMillion}}
	if _, err := dear.Cost(Use{Tokens: TokenClasses{Input: most}}); !errors.Is(err, quota.ErrOverflow) {
		t.Errorf("2^53-1 tokens at $1,000: %v, want overflow", err)
	}
	if _, err := dear.Cost(Use{Tokens: TokenClasses{Input: most / 1000}}); err != nil {
		t.Errorf("2^43 tokens at $1,000: %v, want a cost", err)
	}
	for name, classes := range map[string]TokenClasses{
		"negative": {Input: -1}, "above 2^53-1": {Output: most + 1}, "sum above 2^53-1": {Input: most, CacheRead: 1},
	} {
		var call *CallError
		if _, err := dear.Cost(Use{Tokens: classes}); !errors.As(err, &call) {
			t.Errorf("%s: %v, want a CallError", name, err)
		}
	}
	if _, err := (&Price{Base: Rates{Input: -2}}).Cost(Use{Tokens: TokenClasses{Input: 1}}); !errors.Is(err, ErrCatalogue) {
		t.Errorf("negative price: %v", err)
	}
}

// Exact rational arithmetic is the truth.
func TestCostEqualsBigRat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, 10_000_000), rapid.Int64Range(0, int64(quota.MaxAmount)/4))
		rate := rapid.OneOf(rapid.Int64Range(0, 3_000_000), rapid.Int64Range(0, int64(MaxPerMillion)))
		var stated StatedRates
		var tokens [numberOfClasses]quota.Tokens
		var units [numberOfUnits]int64
		var totalInput int64
		truth := new(big.Rat)
		term := func(n, price, per int64) {
			truth.Add(truth, new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(n), big.NewInt(price)), big.NewInt(per)))
		}
		for i := range tokens {
			n, price := count.Draw(t, "tokens"), PerMillion(rate.Draw(t, "price"))
			if tokens[i], stated.Tokens[i] = quota.Tokens(n), &price; i < numberOfInputs {
				totalInput += n
			}
			term(n, int64(price), 1_000_000)
		}
		for i := range units {
			n, price := count.Draw(t, "units"), rate.Draw(t, "price")
			per := int64(1000)
			if unitNames[i] == "second" {
				per = 3_600_000
			}
			units[i], stated.Units[i] = n, &price
			term(n, price, per)
		}
		want, rest := new(big.Int).QuoRem(truth.Num(), truth.Denom(), new(big.Int))
		if rest.Sign() > 0 {
			want.Add(want, big.NewInt(1))
		}
		price := Price{Base: stated.Complete()}
		got, err := price.Cost(Use{Tokens: TokenClassesOf(tokens), Units: UnitsOf(units)})
		switch {
		case totalInput > int64(quota.MaxAmount):
			if err == nil {
				t.Fatalf("input of %d tokens was priced", totalInput)
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

// What a source leaves out is filled on the way in and left out again on the
// way out, whatever it stated.
func TestStatedRates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stated StatedRates
		for i := range stated.Tokens {
			if i == 0 || rapid.Bool().Draw(t, "stated") {
				price := PerMillion(rapid.Int64Range(0, 3).Draw(t, "price"))
				stated.Tokens[i] = &price
			}
		}
		for i := range stated.Units {
			if rapid.Bool().Draw(t, "stated") {
				price := rapid.Int64Range(0, 3).Draw(t, "price")
				stated.Units[i] = &price
			}
		}
		rates := stated.Complete()
		short := rates.Stated()
		if again := short.Complete(); again != rates {
			t.Fatalf("%+v came back as %+v", rates, again)
		}
		for i := range stated.Tokens {
			if stated.Tokens[i] == nil && short.Tokens[i] != nil {
				t.Fatalf("%s was filled, and is stated now", classNames[i])
			}
		}
	})
}

func TestUnitsAndServices(t *testing.T) {
	perSearch, perImage := int64(10*usd), int64(40*usd)
	input, output := 1*usd, 2*usd
	plain := StatedRates{Tokens: [numberOfClasses]*PerMillion{0: &input, 9: &output}}
	withUnits := plain
	withUnits.Units = [numberOfUnits]*int64{0: &perImage, 3: &perSearch}
	half, dear := input/2, 5*usd
	price := Price{
		Model: "m", Base: withUnits.Complete(),
		Services: []Service{
			{Name: "batch", Base: StatedRates{Tokens: [numberOfClasses]*PerMillion{0: &half}}.Complete()},
			{Name: "priority", Base: StatedRates{Tokens: [numberOfClasses]*PerMillion{0: &dear}}.Complete()},
		},
	}
	tokens := TokenClasses{Input: 1_000_000}
	for _, tt := range []struct {
		name string
		use  Use
		want quota.NanoUSD
	}{
		{"two searches", Use{Units: Units{Searches: 2}}, quota.NanoUSD(10*usd) / 500},
		{"an image", Use{Units: Units{Images: 1}}, quota.NanoUSD(40*usd) / 1000},
		{"sound without a price, beside tokens", Use{Tokens: tokens, Units: Units{Seconds: 5}}, quota.NanoUSD(usd)},
		{"default is the usual tier", Use{Tokens: tokens, Tier: "Default", Speed: "standard"}, quota.NanoUSD(usd)},
		{"batch", Use{Tokens: tokens, Tier: "batch"}, quota.NanoUSD(half)},
		{"batch, as a speed", Use{Tokens: tokens, Speed: "BATCH"}, quota.NanoUSD(half)},
		{"priority", Use{Tokens: tokens, Tier: "priority"}, quota.NanoUSD(dear)},
		{"a tier that nobody priced", Use{Tokens: tokens, Tier: "scale"}, quota.NanoUSD(dear)},
		{"a tier and a speed", Use{Tokens: tokens, Tier: "batch", Speed: "fast"}, quota.NanoUSD(dear)},
	} {
		if got, err := price.Cost(tt.use); err != nil || got != tt.want {
			t.Errorf("%s: %d, %v; want %d", tt.name, got, err, tt.want)
		}
	}
	for field, use := range map[string]Use{
		"usage.units.seconds": {Units: Units{Seconds: 1}},
		"usage.units.pages":   {Units: Units{Pages: -1}},
		"usage.tokens.output": {Tokens: TokenClasses{Output: -1}},
		"usage.tier":          {Tier: "two words"},
		"usage.speed":         {Speed: strings.Repeat("f", MaxServiceBytes+1)},
	} {
		var call *CallError
		if _, err := price.Cost(use); !errors.As(err, &call) || call.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = price.Cost(Use{Tokens: tokens, Units: Units{Images: 1}, Tier: "priority"}) }); n != 0 {
		t.Errorf("Cost makes %g allocations", n)
	}
}

func BenchmarkCost(b *testing.B) {
	c := embeddedFor(b)
	price, _ := c.Price("gemini-2.5-pro")
	use := Use{Tokens: TokenClasses{Input: 250_000, CacheRead: 10_000, Output: 5000, Reasoning: 700}, Tier: "standard"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := price.Cost(use); err != nil {
			b.Fatal(err)
		}
	}
}

// At the edge of 64 bits the division and the rounding may not wrap.
func TestCostAtTheEdgeOf64Bits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Lines that sum to just about MaxInt64 or MaxUint64 nano-USD.
		target := new(big.Int).SetUint64(rapid.SampledFrom([]uint64{math.MaxInt64, math.MaxUint64}).Draw(t, "edge"))
		target.Mul(target, big.NewInt(1_000_000))
		target.Add(target, big.NewInt(rapid.Int64Range(-3_000_000, 3_000_000).Draw(t, "offset")))
		summed := new(big.Int)
		var total sum
		for left := new(big.Int).Set(target); left.Sign() > 0; left.Sub(target, summed) {
			price := big.NewInt(int64(MaxPerMillion))
			tokens := new(big.Int).Quo(left, price)
			if tokens.Sign() == 0 {
				price, tokens = left, big.NewInt(1)
			}
			if tokens.Cmp(big.NewInt(int64(quota.MaxAmount))) > 0 {
				tokens = big.NewInt(int64(quota.MaxAmount))
			}
			total.addTokens(quota.Tokens(tokens.Int64()), PerMillion(price.Int64()))
			summed.Add(summed, new(big.Int).Mul(tokens, price))
		}
		want, rest := new(big.Int).QuoRem(target, big.NewInt(1_000_000), new(big.Int))
		if rest.Sign() > 0 {
			want.Add(want, big.NewInt(1))
		}
		got, err := total.roundedUp()
		if want.IsInt64() {
			if err != nil || int64(got) != want.Int64() {
				t.Fatalf("%d, %v; want %s", got, err, want)
			}
		} else if !errors.Is(err, quota.ErrOverflow) {
			t.Fatalf("%d, %v; want overflow of %s", got, err, want)
		}
	})
}
