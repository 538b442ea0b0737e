package estimator

import (
	"slices"
	"strings"
	"time"

	"github.com/budgetd/budgetd/estimator/catalogue"
	"github.com/budgetd/budgetd/estimator/family"
	"github.com/budgetd/budgetd/quota"
)

// ModelAt returns what is known of a model, with the price of reservations that
// are made at an instant: that of the policy, else that of the catalogue, else
// the ceiling for unknown models where one is configured. It fails with an
// [UnknownModelError], or a [CallError] that names the field out of bounds.
//
// The policy is asked for the names as the caller uses them first, then with
// the catalogue's name of the provider, of the model, and of both: so a price of
// a dated snapshot, or at a host, goes before that of the model as its maker
// has it. The price's own names tell which it was; the model's are the
// catalogue's, where it knows the model, since limits match on them.
func (e *Estimator) ModelAt(provider, model string, at time.Time) (Model, error) {
	switch {
	case model == "":
		return Model{}, invalid("model", "is required")
	case len(model) > maxModelBytes:
		return Model{}, invalid("model", "is over %d bytes", maxModelBytes)
	case len(provider) > maxModelBytes:
		return Model{}, invalid("provider", "is over %d bytes", maxModelBytes)
	}
	c := e.Catalogue()
	m, known := c.LookupAt(provider, model, at)
	stated, priced := e.policyPrice(c, provider, model, m, at)
	switch {
	case priced && known:
		m.Price = priceOf(stated, m, c.search)
		return m, nil
	case priced:
		return Model{
			Provider: stated.Provider, ID: stated.Model, Mode: ModeChat,
			Encoding: encodingFor(stated.Model), Rule: family.Of(stated.Model), Price: priceOf(stated, Model{}, c.search),
		}, nil
	case known:
		return m, nil
	}
	e.metrics.unknown.Inc()
	if e.unknown == nil {
		return Model{}, e.unknownModel(c, provider, model, at)
	}
	price := Price{
		Model: model, Version: c.version,
		Base: complete(catalogue.Rates{"input": int64(e.unknown.Input), "output": int64(e.unknown.Output)}),
	}
	price.fillSearch(c.search)
	return Model{ID: model, Mode: ModeChat, Encoding: encodingFor(model), Rule: family.Of(model), Price: price}, nil
}

// policyPrice asks the policy for a model, of which the catalogue knows m.
func (e *Estimator) policyPrice(c *Catalogue, provider, model string, m Model, at time.Time) (quota.ModelPrice, bool) {
	if e.policy == nil {
		return quota.ModelPrice{}, false
	}
	policy := e.policy()
	if policy == nil || len(policy.Prices) == 0 {
		return quota.ModelPrice{}, false
	}
	id := strings.TrimPrefix(model, "models/")
	// "openai/gpt-4o" names its provider, also beside the provider "openai".
	if head, rest, ok := strings.Cut(id, "/"); ok && (provider == "" || strings.EqualFold(head, provider)) {
		provider, id = head, rest
	}
	host := provider
	if p := c.byName[strings.ToLower(provider)]; p != nil {
		host = p.id
	}
	for _, name := range [...]struct{ provider, model string }{{provider, id}, {host, id}, {host, m.ID}, {m.Provider, m.ID}} {
		if name.provider == "" || name.model == "" {
			continue
		}
		if price, stated := policy.PriceAt(name.provider, name.model, at); stated {
			return price, true
		}
	}
	return quota.ModelPrice{}, false
}

// priceOf returns a price of the policy as one of the catalogue's: classes that
// it does not state cost what [Rates] documents, a long input costs no more than
// a short one, and a tier or speed as much as the usual one, where it does not say
// otherwise. Units that it does not state cost what the catalogue says, and a
// search that nobody priced costs the dearest. It has the model's own names where
// it is spelled like them.
func priceOf(stated quota.ModelPrice, m Model, search PerThousand) Price {
	rates := policyRates(stated.Rates)
	if m.ID != "" {
		units := m.Price.Base.units()
		for i, name := range unitNames {
			if _, ok := rates[name]; !ok && units[i] != NoPrice {
				rates[name] = units[i]
			}
		}
	}
	from := catalogue.Price{Rates: rates, Tiers: policyTiers(stated.Tiers)}
	for _, s := range stated.Services {
		from.Services = append(from.Services, catalogue.Service{Name: s.Name, Rates: policyRates(s.Rates), Tiers: policyTiers(s.Tiers)})
	}
	price := newPrice(from)
	price.Provider, price.Model, price.Version = stated.Provider, stated.Model, stated.Version()
	price.fillSearch(search)
	if strings.EqualFold(stated.Provider, m.Provider) && strings.EqualFold(stated.Model, m.ID) {
		price.Provider, price.Model = m.Provider, m.ID
	}
	return price
}

// policyRates returns rates of the policy in the catalogue's units: nano-USD per
// hour for a second, and per thousand for the other units.
func policyRates(stated map[string]quota.NanoUSD) catalogue.Rates {
	rates := make(catalogue.Rates, len(stated))
	for name, nano := range stated {
		switch {
		case name == unitNames[unitSecond]:
			nano *= 3_600 // of at most quota.MaxPriceSecond
		case slices.Contains(unitNames[:], name):
			nano *= 1_000 // of at most quota.MaxPriceEach
		}
		rates[name] = int64(nano)
	}
	return rates
}

func policyTiers(stated []quota.PriceTier) (tiers []catalogue.Tier) {
	for _, tier := range stated {
		tiers = append(tiers, catalogue.Tier{Above: int64(tier.Above), Rates: policyRates(tier.Rates)})
	}
	return tiers
}
