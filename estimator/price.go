package estimator

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/budgetd/budgetd/quota"
)

// PerMillion is a price: nano-USD per million tokens. $0.075 per million is
// 75,000,000.
type PerMillion int64

// MaxPerMillion is the highest price that a catalogue may hold: $1,000 per
// million tokens. The dearest published model costs $600; what is above is a
// slip of the decimal point.
const MaxPerMillion PerMillion = 1000 * PerMillion(quota.OneUSD)

const tokensPerPriceUnit = 1_000_000

// Rates is one complete set of prices, each 0 to [MaxPerMillion]. A catalogue
// fills a class that its source does not price with the dearest price that
// may sensibly stand in for it, never with 0.
type Rates struct {
	Input        PerMillion
	CacheRead    PerMillion // Input where the source has none
	CacheWrite   PerMillion // Input where the source has none
	CacheWrite1h PerMillion // the dearer of CacheWrite and Input where the source has none
	Output       PerMillion // Input where the source has none (embeddings)
	Reasoning    PerMillion // Output where the source has none
}

// Tier is the set of prices that holds for the whole call once its input, all
// input classes together, is above a bound: a cliff, as the providers bill it.
type Tier struct {
	Above quota.Tokens // input tokens, exclusive
	Rates Rates
}

// Price is what one model of one provider costs, with the version of the
// catalogue that says so. It is a plain value: a reservation may keep it.
type Price struct {
	Provider string // canonical, such as "openai"; "" for the unknown-model ceiling
	Model    string // canonical id, such as "gpt-4o-mini"
	Version  string // Catalogue.Version
	Base     Rates
	Tiers    []Tier // ascending by Above
}

// RatesFor returns the prices of a call with so many input tokens, all input
// classes together: class by class the dearest of the base and of every tier
// that the input is above. So a larger input is never priced lower.
func (p Price) RatesFor(totalInput quota.Tokens) Rates {
	rates := p.Base
	for _, tier := range p.Tiers {
		if totalInput > tier.Above {
			rates = rates.dearest(tier.Rates)
		}
	}
	return rates
}

func (r Rates) dearest(o Rates) Rates {
	return Rates{
		Input:        max(r.Input, o.Input),
		CacheRead:    max(r.CacheRead, o.CacheRead),
		CacheWrite:   max(r.CacheWrite, o.CacheWrite),
		CacheWrite1h: max(r.CacheWrite1h, o.CacheWrite1h),
		Output:       max(r.Output, o.Output),
		Reasoning:    max(r.Reasoning, o.Reasoning),
	}
}

// Cost prices a call: the sum over the classes of tokens x price is formed
// exactly, in 128 bits, and rounded up once to the nano-USD. It fails when a
// class is out of range, when a price is negative or above [MaxPerMillion],
// or with quota.ErrOverflow when the cost leaves 64 bits.
func (p Price) Cost(classes TokenClasses) (quota.NanoUSD, error) {
	totalInput, err := classes.TotalInput()
	if err != nil {
		return 0, err
	}
	rates := p.RatesFor(totalInput)
	return sumRoundedUp(
		line{classes.Input, rates.Input},
		line{classes.CacheRead, rates.CacheRead},
		line{classes.CacheWrite, rates.CacheWrite},
		line{classes.CacheWrite1h, rates.CacheWrite1h},
		line{classes.Output, rates.Output},
		line{classes.Reasoning, rates.Reasoning},
	)
}

// line is one term of a cost.
type line struct {
	tokens quota.Tokens
	price  PerMillion
}

// sumRoundedUp returns ceil(sum of tokens*price / 1,000,000). A product is
// below 2^53 * 2^40, so the sum of a few fits 128 bits with room to spare.
func sumRoundedUp(lines ...line) (quota.NanoUSD, error) {
	var hi, lo uint64
	for _, l := range lines {
		if l.tokens.Amount().Check() != nil {
			return 0, invalid("tokens", "%d is not between 0 and %d", int64(l.tokens), int64(quota.MaxAmount))
		}
		if l.price < 0 || l.price > MaxPerMillion {
			return 0, fmt.Errorf("%w: price %d nano-USD per million is not between 0 and %d", ErrCatalogue, int64(l.price), int64(MaxPerMillion))
		}
		productHi, productLo := bits.Mul64(uint64(l.tokens), uint64(l.price))
		var carry uint64
		lo, carry = bits.Add64(lo, productLo, 0)
		hi, _ = bits.Add64(hi, productHi, carry)
	}
	if hi >= tokensPerPriceUnit { // the quotient would not fit 64 bits
		return 0, fmt.Errorf("cost: %w", quota.ErrOverflow)
	}
	quotient, remainder := bits.Div64(hi, lo, tokensPerPriceUnit)
	if remainder > 0 && quotient < math.MaxUint64 {
		quotient++
	}
	if quotient > math.MaxInt64 {
		return 0, fmt.Errorf("cost: %w", quota.ErrOverflow)
	}
	return quota.NanoUSD(quotient), nil
}
