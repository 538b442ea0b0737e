package estimator

import (
	"strings"
	"time"

	"github.com/budgetd/budgetd/estimator/catalogue"
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
	m, known := e.catalogue.Lookup(provider, model)
	stated, priced := e.policyPrice(provider, model, m, at)
	switch {
	case priced && known:
		m.Price = priceOf(stated, m)
		return m, nil
	case priced:
		return Model{
			Provider: stated.Provider, ID: stated.Model, Mode: ModeChat,
			Encoding: encodingFor(stated.Model), Rule: RuleFor(stated.Model), Price: priceOf(stated, Model{}),
		}, nil
	case known:
		return m, nil
	}
	e.metrics.unknown.Inc()
	if e.unknown == nil {
		return Model{}, &UnknownModelError{Provider: provider, Model: model}
	}
	return Model{
		ID: model, Mode: ModeChat, Encoding: encodingFor(model), Rule: RuleFor(model),
		Price: Price{
			Model: model, Version: e.catalogue.version,
			Base: complete(catalogue.Rates{Input: (*int64)(&e.unknown.Input), Output: (*int64)(&e.unknown.Output)}),
		},
	}, nil
}

// policyPrice asks the policy for a model, of which the catalogue knows m.
func (e *Estimator) policyPrice(provider, model string, m Model, at time.Time) (quota.ModelPrice, bool) {
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
	if p := e.catalogue.byName[strings.ToLower(provider)]; p != nil {
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
// it does not state cost what [Rates] documents, and a long input costs no more
// than a short one. It has the model's own names where it is spelled like them.
func priceOf(stated quota.ModelPrice, m Model) Price {
	rate := func(class string) *int64 {
		if nano, ok := stated.Rates[class]; ok {
			n := int64(nano)
			return &n
		}
		return nil
	}
	price := Price{
		Provider: stated.Provider, Model: stated.Model, Version: stated.Version(),
		Base: complete(catalogue.Rates{
			Input: rate("input"), CacheRead: rate("cache_read"), CacheWrite: rate("cache_write"), CacheWrite1h: rate("cache_write_1h"),
			Output: rate("output"), Reasoning: rate("reasoning"),
		}),
	}
	if strings.EqualFold(stated.Provider, m.Provider) && strings.EqualFold(stated.Model, m.ID) {
		price.Provider, price.Model = m.Provider, m.ID
	}
	return price
}
