package policyfile

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/token"

	"github.com/budgetd/budgetd/quota"
)

const (
	examplePrice    = "{from: 2026-12-01, input: $0.15, output: $0.60}"
	exampleTiers    = "[{above: 200000, input: $0.30, output: $0.90}]"
	exampleServices = "{batch: {input: $0.075, output: $0.30}}"
)

// prices reads the prices of one model, each from its instant on.
func (r *reader) prices(e entry) []quota.ModelPrice {
	provider, model, ok := strings.Cut(e.key, "/")
	if !ok {
		r.fault(e.token, e.path, "a price is named provider/model, as in openai/gpt-4o-mini")
		return nil
	}
	elements, ok := r.list(e.value, e.path, "["+examplePrice+"]")
	if ok && len(elements) == 0 {
		r.fault(e.token, e.path, "no price is stated; write [%s]", examplePrice)
	}
	var prices []quota.ModelPrice
	for _, element := range elements {
		known := len(r.faults)
		set, places, ok := r.priceSet(element, examplePrice, "from", "tiers", "services")
		if !ok {
			continue
		}
		price := quota.ModelPrice{Provider: provider, Model: model, From: set.from, Rates: set.rates, Tiers: set.tiers, Services: set.services}
		if len(r.faults) == known {
			r.validated(element, places, price.Validate())
		}
		same := func(other quota.ModelPrice) bool { return other.From.Equal(price.From) }
		if i := slices.IndexFunc(prices, same); i >= 0 && len(r.faults) == known {
			r.fault(element.token, element.path+".from", "price %d begins then too; keep one", i)
			continue
		}
		prices = append(prices, price)
	}
	return prices
}

// priceSet is what one mapping of rates may have.
type priceSet struct {
	rates    map[string]quota.NanoUSD
	from     time.Time
	above    quota.Tokens
	tiers    []quota.PriceTier
	services []quota.PriceService
}

// priceSet reads rates and those of the other words that are allowed beside them.
func (r *reader) priceSet(e entry, example string, words ...string) (set priceSet, places map[string]*token.Token, ok bool) {
	set.rates = map[string]quota.NanoUSD{}
	fields, ok := r.mapping(e.value, e.path, example)
	if !ok {
		return set, nil, false
	}
	places = make(map[string]*token.Token, len(fields))
	for _, field := range fields {
		places[field.key] = field.token
		switch {
		case slices.Contains(quota.PriceNames, field.key):
			if amount, ok := r.amount(field, quota.MeterCost); ok {
				set.rates[field.key] = quota.NanoUSD(amount)
			}
		case !slices.Contains(words, field.key):
			r.refuse(field, nil, strings.Join(slices.Concat(words, quota.PriceNames), ", "))
		case field.key == "from":
			set.from = r.instant(field)
		case field.key == "above":
			set.above = quota.Tokens(r.count(field, quota.MaxPriceBound, fmt.Sprintf("a number of input tokens from 1 to %d", quota.MaxPriceBound)))
		case field.key == "tiers":
			set.tiers = r.priceTiers(field)
		case field.key == "services":
			set.services = r.priceServices(field)
		}
	}
	return set, places, true
}

// priceTiers reads prices by bound of input, in any order.
func (r *reader) priceTiers(e entry) []quota.PriceTier {
	elements, _ := r.list(e.value, e.path, exampleTiers)
	var tiers []quota.PriceTier
	for _, element := range elements {
		set, places, ok := r.priceSet(element, exampleTiers[1:len(exampleTiers)-1], "above")
		if !ok {
			continue
		}
		if _, stated := places["above"]; !stated {
			r.fault(element.token, element.path+".above", "it is missing; write the input tokens above which the prices hold")
		}
		tiers = append(tiers, quota.PriceTier{Above: set.above, Rates: set.rates})
	}
	slices.SortStableFunc(tiers, func(a, b quota.PriceTier) int { return cmp.Compare(a.Above, b.Above) })
	return tiers
}

// priceServices reads prices by service tier or speed.
func (r *reader) priceServices(e entry) []quota.PriceService {
	fields, _ := r.mapping(e.value, e.path, exampleServices)
	var services []quota.PriceService
	for _, field := range fields {
		if set, _, ok := r.priceSet(field, "{input: $0.075, output: $0.30}", "tiers"); ok {
			services = append(services, quota.PriceService{Name: field.key, Rates: set.rates, Tiers: set.tiers})
		}
	}
	slices.SortFunc(services, func(a, b quota.PriceService) int { return cmp.Compare(a.Name, b.Name) })
	return services
}

func flowPrice(price quota.ModelPrice) string {
	var fields flow
	fields.add("from", scalar(formatInstant(price.From)))
	fields.addRates(price.Rates)
	fields.addTiers(price.Tiers)
	var services flow
	for _, s := range price.Services {
		var one flow
		one.addRates(s.Rates)
		one.addTiers(s.Tiers)
		services.add(s.Name, one.String())
	}
	if len(services) > 0 {
		fields.add("services", services.String())
	}
	return fields.String()
}

func (f *flow) addRates(rates map[string]quota.NanoUSD) {
	for _, name := range quota.PriceNames {
		if rate, stated := rates[name]; stated {
			f.add(name, quota.FormatAmount(quota.MeterCost, rate.Amount()))
		}
	}
}

func (f *flow) addTiers(tiers []quota.PriceTier) {
	var all []string
	for _, tier := range tiers {
		var one flow
		one.add("above", quota.FormatAmount(quota.MeterRequests, tier.Above.Amount()))
		one.addRates(tier.Rates)
		all = append(all, one.String())
	}
	if len(all) > 0 {
		f.add("tiers", "["+strings.Join(all, ", ")+"]")
	}
}

func writePrices(b *bytes.Buffer, prices []quota.ModelPrice) {
	for i, price := range prices {
		if i == 0 || prices[i-1].Name() != price.Name() {
			fmt.Fprintf(b, "  %s:\n", scalar(price.Name()))
		}
		fmt.Fprintf(b, "    - %s\n", flowPrice(price))
	}
}
