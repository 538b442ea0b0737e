package estimator

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/budgetd/budgetd/quota"
)

// Tier is the set of prices that holds for the whole call once its input, all
// input classes together, is above a bound: a cliff, as the providers bill it.
type Tier struct {
	Above quota.Tokens // input tokens, exclusive
	Rates Rates
}

// Service is what calls cost that the provider serves in another way than
// usual: later, or sooner.
type Service struct {
	Name  string // as the provider answers: "batch", "flex", "priority", "fast"; lower case
	Base  Rates
	Tiers []Tier // ascending by Above
}

// Price is what one model of one provider costs, with the version of the
// catalogue that says so. It is a plain value: a reservation may keep it.
type Price struct {
	Provider string // canonical, such as "openai"; "" for the unknown-model ceiling
	Model    string // canonical id, such as "gpt-4o-mini"
	Version  string // Catalogue.Version
	Base     Rates
	Tiers    []Tier    // ascending by Above
	Services []Service // by service tier or speed
}

// RatesFor returns the prices of a call with so many input tokens, all input
// classes together, served as usual: class by class the dearest of the base and
// of every tier that the input is above. So a larger input is never priced lower.
func (p *Price) RatesFor(totalInput quota.Tokens) Rates {
	return ratesAbove(p.Base, p.Tiers, totalInput)
}

func ratesAbove(rates Rates, tiers []Tier, totalInput quota.Tokens) Rates {
	for i := range tiers {
		if totalInput > tiers[i].Above {
			rates = rates.dearest(tiers[i].Rates)
		}
	}
	return rates
}

// RatesServed returns the prices of a call with so many input tokens at a
// service tier and a speed: the usual ones, or those of the service that bears
// the name. A name that the price does not have costs the dearest of all it has,
// class by class, since nobody can say less; so do a tier and a speed together.
func (p *Price) RatesServed(totalInput quota.Tokens, tier, speed string) Rates {
	tierIsUsual, speedIsUsual := usual(tier), usual(speed)
	if tierIsUsual && speedIsUsual {
		return p.RatesFor(totalInput)
	}
	if tierIsUsual || speedIsUsual {
		name := tier
		if tierIsUsual {
			name = speed
		}
		for i := range p.Services {
			if s := &p.Services[i]; strings.EqualFold(s.Name, name) {
				return ratesAbove(s.Base, s.Tiers, totalInput)
			}
		}
	}
	rates := p.RatesFor(totalInput)
	for i := range p.Services {
		rates = rates.dearest(ratesAbove(p.Services[i].Base, p.Services[i].Tiers, totalInput))
	}
	return rates
}

// Cost prices a call: the sum over the classes and units of count x price is
// formed exactly, in 128 bits, and rounded up once to the nano-USD. It
// allocates nothing. It fails with a [CallError] when the use is not as
// [Use.Check] has it, or is of units alone that have no price; when a price is
// out of range; or with quota.ErrOverflow when the cost leaves 64 bits.
//
// A unit without a price costs nothing beside tokens, which are then what the
// provider bills: images, sound and pages in a prompt are tokens of it.
func (p *Price) Cost(use Use) (quota.NanoUSD, error) {
	if err := use.Check(); err != nil {
		return 0, err
	}
	totalInput, err := use.Tokens.TotalInput()
	if err != nil {
		return 0, err
	}
	rates := p.RatesServed(totalInput, use.Tier, use.Speed)
	var total sum
	var tokens quota.Tokens
	prices := rates.tokens()
	for i, n := range use.Tokens.List() {
		if tokens |= n; n > 0 && prices[i] == NoPrice {
			return 0, invalid("usage.tokens."+classNames[i], "%.64q has no price of tokens; report what it bills, or amounts", p.Model)
		}
		total.addTokens(n, prices[i])
	}
	unitPrices := rates.units()
	for i, n := range use.Units.List() {
		if n > 0 && unitPrices[i] == NoPrice {
			if tokens == 0 {
				return 0, invalid("usage.units."+unitNames[i]+"s", "%.64q has no price per %s; report tokens or amounts instead", p.Model, unitNames[i])
			}
			continue
		}
		total.addUnits(i, n, unitPrices[i])
	}
	return total.roundedUp()
}

// sum adds products of counts and prices exactly: in 1/18,000,000 nano-USD, the
// least common denominator of a million tokens, an hour in milliseconds and a
// thousand. A product is below 2^53 counts x 2^47 nano-USD x 2^15, so that 19 of
// them stay below 2^120.
type sum struct {
	hi, lo  uint64
	invalid error
}

const (
	sumUnit     = 18_000_000
	perToken    = sumUnit / 1_000_000
	perMillis   = sumUnit / 3_600_000
	perThousand = sumUnit / 1_000
)

func (s *sum) addTokens(n quota.Tokens, price PerMillion) {
	if n != 0 && s.check(n.Amount(), int64(price), int64(MaxPerMillion)) {
		s.add(uint64(n), uint64(price)*perToken)
	}
}

// addUnits adds units of the kind that is the i-th of [Units].
func (s *sum) addUnits(i int, n, price int64) {
	most, scale := int64(MaxPerThousand), uint64(perThousand)
	if i == unitSecond {
		most, scale = int64(MaxPerHour), perMillis
	}
	if n > 0 && s.check(quota.Amount(n), price, most) {
		s.add(uint64(n), uint64(price)*scale)
	}
}

func (s *sum) check(n quota.Amount, price, most int64) bool {
	switch {
	case n.Check() != nil:
		s.invalid = invalid("tokens", "%d is not between 0 and %d", int64(n), int64(quota.MaxAmount))
	case price < 0 || price > most:
		s.invalid = fmt.Errorf("%w: price %d nano-USD is not between 0 and %d", ErrCatalogue, price, most)
	}
	return s.invalid == nil
}

func (s *sum) add(n, price uint64) {
	productHi, productLo := bits.Mul64(n, price)
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, productLo, 0)
	s.hi, _ = bits.Add64(s.hi, productHi, carry)
}

// roundedUp is the sum in nano-USD, rounded up.
func (s *sum) roundedUp() (quota.NanoUSD, error) {
	if s.invalid != nil {
		return 0, s.invalid
	}
	if s.hi >= sumUnit { // the quotient would not fit 64 bits
		return 0, fmt.Errorf("cost: %w", quota.ErrOverflow)
	}
	quotient, remainder := bits.Div64(s.hi, s.lo, sumUnit)
	if remainder > 0 && quotient < math.MaxUint64 {
		quotient++
	}
	if quotient > math.MaxInt64 {
		return 0, fmt.Errorf("cost: %w", quota.ErrOverflow)
	}
	return quota.NanoUSD(quotient), nil
}
