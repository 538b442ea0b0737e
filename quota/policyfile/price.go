package policyfile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/token"

	"github.com/budgetd/budgetd/quota"
)

// prices reads the prices of one model, each from its instant on.
func (r *reader) prices(e entry) []quota.ModelPrice {
	const example = "[{from: 2026-12-01, input: $0.15, output: $0.60}]"
	provider, model, ok := strings.Cut(e.key, "/")
	if !ok {
		r.fault(e.token, e.path, "a price is named provider/model, as in openai/gpt-4o-mini")
		return nil
	}
	elements, ok := r.list(e.value, e.path, example)
	if ok && len(elements) == 0 {
		r.fault(e.token, e.path, "no price is stated; write %s", example)
	}
	var prices []quota.ModelPrice
	for _, element := range elements {
		known := len(r.faults)
		price := quota.ModelPrice{Provider: provider, Model: model, Rates: map[string]quota.NanoUSD{}}
		fields, ok := r.mapping(element.value, element.path, "{from: 2026-12-01, input: $0.15, output: $0.60}")
		if !ok {
			continue
		}
		places := make(map[string]*token.Token, len(fields))
		for _, field := range fields {
			places[field.key] = field.token
			switch {
			case field.key == "from":
				price.From = r.instant(field)
			case slices.Contains(quota.PriceClasses, field.key):
				if amount, ok := r.amount(field, quota.MeterCost); ok {
					price.Rates[field.key] = quota.NanoUSD(amount)
				}
			default:
				r.refuse(field, nil, "from, "+strings.Join(quota.PriceClasses, ", "))
			}
		}
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

func flowPrice(price quota.ModelPrice) string {
	var fields flow
	fields.add("from", scalar(formatInstant(price.From)))
	for _, class := range quota.PriceClasses {
		if rate, stated := price.Rates[class]; stated {
			fields.add(class, quota.FormatAmount(quota.MeterCost, rate.Amount()))
		}
	}
	return fields.String()
}

func writePrices(b *bytes.Buffer, prices []quota.ModelPrice) {
	for i, price := range prices {
		if i == 0 || prices[i-1].Name() != price.Name() {
			fmt.Fprintf(b, "  %s:\n", scalar(price.Name()))
		}
		fmt.Fprintf(b, "    - %s\n", flowPrice(price))
	}
}
