package quota

import (
	"cmp"
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
	// Rates are nano-USD per million tokens, by class: input and output, and
	// where stated the others of [PriceClasses].
	Rates map[string]NanoUSD
}

// Bounds of prices.
const (
	MaxPrices      = 10_000         // prices of a policy
	MaxPricePerMil = 1_000 * OneUSD // per million tokens
	maxModelBytes  = 128            // of a provider's or model's name
)

// PriceClasses are the classes of tokens that a price may state.
var PriceClasses = []string{
	"input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning",
	"input_audio", "input_image", "input_video", "cache_read_audio", "cache_read_image",
	"output_audio", "output_image", "output_video",
}

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
	for _, class := range sortedKeys(m.Rates) {
		if !slices.Contains(PriceClasses, class) {
			f.add(class, "it is not a class of tokens; write %v", PriceClasses)
		} else if rate := m.Rates[class]; rate < 0 || rate > MaxPricePerMil {
			f.add(class, "%s is not between $0 and %s per million tokens", rate, MaxPricePerMil)
		}
	}
	for _, class := range []string{"input", "output"} {
		if _, stated := m.Rates[class]; !stated {
			f.add(class, "it is missing; write dollars per million tokens, $0 where it costs nothing")
		}
	}
	return f.err()
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
