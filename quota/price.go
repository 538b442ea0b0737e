package quota

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ModelPrice is what a model costs from an instant on, as an operator states
// it. It stands before the catalogue's price. Names are the same whatever their
// case.
type ModelPrice struct {
	Provider string
	Model    string
	From     time.Time // the reservations that are made from it on pin this price
	// Rates are nano-USD: per million tokens by class, input and output and where
	// stated the others of [PriceClasses]; and each by unit, of [PriceUnits].
	Rates    map[string]NanoUSD
	Tiers    []PriceTier    // by bound, ascending
	Services []PriceService // by name, ascending
}

// PriceTier is what the whole call costs whose input is above a bound. What it
// does not state is as below the bound.
type PriceTier struct {
	Above Tokens // input tokens, exclusive: 1 to MaxPriceBound
	Rates map[string]NanoUSD
}

// PriceService is what a call costs that the provider served otherwise than
// usual: by a service tier or a speed. What it does not state is as usual.
type PriceService struct {
	Name  string // as the provider's answer has it, in lower case
	Rates map[string]NanoUSD
	Tiers []PriceTier
}

// Bounds of prices.
const (
	MaxPrices        = 10_000         // prices of a policy
	MaxPricePerMil   = 1_000 * OneUSD // per million tokens
	MaxPriceEach     = 100 * OneUSD   // an image, a page, a search or a request
	MaxPriceSecond   = 10 * OneUSD
	MaxPriceBound    = 1 << 30 // input tokens
	MaxPriceTiers    = 3       // of a price, and of each of its services
	MaxPriceServices = 6       // of a price: reservations carry it whole
	maxModelBytes    = 128     // of a provider's or model's name
	maxServiceBytes  = 32
)

// PriceClasses are the classes of tokens that a price may state.
var PriceClasses = []string{
	"input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning",
	"input_audio", "input_image", "input_video", "cache_read_audio", "cache_read_image",
	"output_audio", "output_image", "output_video",
}

// PriceUnits are what a price may state besides tokens, each by itself; second is
// of sound or video.
var PriceUnits = []string{"image", "second", "page", "search", "request"}

// PriceNames are all that a price may state: PriceClasses and PriceUnits.
var PriceNames = slices.Concat(PriceClasses, PriceUnits)

// Name is how a price is called beside others: "openai/gpt-4o-mini".
func (m ModelPrice) Name() string { return m.Provider + "/" + m.Model }

// Version names the price for good, as reservations pin it.
func (m ModelPrice) Version() string {
	return "policy:" + m.Name() + "@" + m.From.UTC().Format(time.RFC3339Nano)
}

// Validate returns the faults of the price as joined [FieldError] values, nil
// when it has none.
func (m ModelPrice) Validate() error {
	var f faults
	for _, part := range []struct{ field, text string }{{"provider", m.Provider}, {"model", m.Model}} {
		switch {
		case part.text == "":
			f.add(part.field, "it is empty; name prices provider/model, as in openai/gpt-4o-mini")
		case len(part.text) > maxModelBytes:
			f.add(part.field, "it has %d bytes, at most %d are accepted", len(part.text), maxModelBytes)
		case part.field == "provider" && strings.Contains(part.text, "/"):
			f.add(part.field, "%s contains a slash, which ends a provider's name; remove it", quoteShort(part.text))
		default:
			if p := freeTextProblem(part.text); p != "" {
				f.add(part.field, "%s", p)
			}
		}
	}
	if year := m.From.Year(); year < 1970 || year > 9998 {
		f.add("from", "it is missing, or not between the years 1970 and 9998; write an instant such as 2026-12-01T00:00:00Z")
	}
	if p := microsecondProblem(m.From); p != "" {
		f.add("from", "%s", p)
	}
	f.rates("", m.Rates)
	f.tiers("", m.Tiers)
	if len(m.Services) > MaxPriceServices {
		f.add("services", "%d are stated, at most %d are accepted", len(m.Services), MaxPriceServices)
	}
	for i, s := range m.Services {
		path := "services." + quoteShort(s.Name)
		switch {
		case !isName(s.Name) || len(s.Name) > maxServiceBytes:
			f.add(path, "it is not the name of a service tier; use 1 to %d of a-z, 0-9, '_' and '-', as in batch", maxServiceBytes)
		case i > 0 && s.Name <= m.Services[i-1].Name:
			f.add(path, "services are in order of their names, each once")
		case len(s.Rates) == 0 && len(s.Tiers) == 0:
			f.add(path, "no price is stated")
		}
		f.rates(path+".", s.Rates)
		f.tiers(path+".", s.Tiers)
	}
	for _, class := range []string{"input", "output"} {
		if _, stated := m.Rates[class]; !stated {
			f.add(class, "it is missing; write dollars per million tokens, $0 where it costs nothing")
		}
	}
	return f.err()
}

// rates adds the faults of rates below a path that is empty or ends in a dot.
func (f *faults) rates(path string, rates map[string]NanoUSD) {
	for _, name := range sortedKeys(rates) {
		most, per := MaxPricePerMil, "per million tokens"
		switch {
		case name == "second":
			most, per = MaxPriceSecond, "a second"
		case slices.Contains(PriceUnits, name):
			most, per = MaxPriceEach, "each"
		case !slices.Contains(PriceClasses, name):
			f.add(path+name, "it is not a class of tokens and not a unit; write %v", PriceNames)
			continue
		}
		if rate := rates[name]; rate < 0 || rate > most {
			f.add(path+name, "%s is not between $0 and %s %s", rate, most, per)
		}
	}
}

func (f *faults) tiers(path string, tiers []PriceTier) {
	path += "tiers"
	if len(tiers) > MaxPriceTiers {
		f.add(path, "%d are stated, at most %d are accepted", len(tiers), MaxPriceTiers)
	}
	for i, tier := range tiers {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case tier.Above < 1 || tier.Above > MaxPriceBound:
			f.add(at+".above", "%d is not between 1 and %d input tokens", tier.Above, MaxPriceBound)
		case i > 0 && tier.Above <= tiers[i-1].Above:
			f.add(at+".above", "%d does not come after %d; state the bounds in order, each once", tier.Above, tiers[i-1].Above)
		case len(tier.Rates) == 0:
			f.add(at, "no price is stated")
		}
		f.rates(at+".", tier.Rates)
	}
}

// With returns the policy with prices, and with what grants covered in periods
// that have ended, in place of those that it has. The error joins one
// [FieldError] a fault. Uses of grants that the policy does not have are left
// out.
func (p *Policy) With(prices []ModelPrice, uses []GrantUse) (*Policy, error) {
	var f faults
	with := *p
	with.Prices = slices.Clone(prices)
	if len(prices) > MaxPrices {
		f.add("prices", "%d are stated, at most %d are accepted", len(prices), MaxPrices)
		return nil, f.err()
	}
	slices.SortFunc(with.Prices, func(a, b ModelPrice) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Model, b.Model), a.From.Compare(b.From))
	})
	with.prices = make(map[string][]ModelPrice)
	for i, price := range with.Prices {
		path := "prices." + quoteShort(price.Name())
		f.under(path, price.Validate())
		if i > 0 && with.Prices[i-1].Name() == price.Name() && with.Prices[i-1].From.Equal(price.From) {
			f.add(path, "two prices begin at %s; keep one", price.From.UTC().Format(time.RFC3339))
		}
		key := priceKey(price.Provider, price.Model)
		if known := with.prices[key]; len(known) > 0 && known[0].Name() != price.Name() {
			f.add(path, "the model is stated as %s too, and names are the same whatever their case; write it in one way", quoteShort(known[0].Name()))
			continue
		}
		with.prices[key] = append(with.prices[key], price)
	}
	with.uses = p.usesByGrant(&f, uses)
	if len(f) > 0 {
		return nil, f.err()
	}
	return &with, nil
}

// PriceAt returns the price that a reservation made at the instant pins: the
// latest that has begun. It reports false when the policy states none.
func (p *Policy) PriceAt(provider, model string, at time.Time) (ModelPrice, bool) {
	prices := p.PricesOf(provider, model)
	after, _ := slices.BinarySearchFunc(prices, at, func(m ModelPrice, at time.Time) int {
		if m.From.After(at) {
			return 1
		}
		return -1
	})
	if after == 0 {
		return ModelPrice{}, false
	}
	return prices[after-1], true
}

// PricesOf returns the prices that the policy states of a model, in the order in
// which they begin, to read; none where it states none.
func (p *Policy) PricesOf(provider, model string) []ModelPrice {
	return p.prices[priceKey(provider, model)]
}

func priceKey(provider, model string) string {
	return strings.ToLower(provider + "/" + model)
}
