package main

import (
	"slices"
	"strings"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
)

// priceRow is one row of rates: a model's usual ones, or those above a bound of
// input, of a service tier, or of both.
type priceRow struct {
	model, from, when string
	rates             map[string]int64
}

// with returns rows of some rates and of those above bounds. Where nothing is
// stated there is no row.
func (r priceRow) with(when string, rates map[string]int64, tiers []*budgetv1.PriceTier) []priceRow {
	var rows []priceRow
	if len(rates) > 0 {
		rows = append(rows, priceRow{r.model, r.from, when, rates})
	}
	for _, tier := range tiers {
		above := strings.TrimSpace(when + " above " + showAmount("", tier.Above))
		rows = append(rows, priceRow{r.model, r.from, above, tier.Rates})
	}
	return rows
}

// showPrices prints rows with a column for each of the names that some row states.
func showPrices(s streams, rows []priceRow, names []string) {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !slices.ContainsFunc(rows, func(r priceRow) bool { _, stated := r.rates[name]; return stated })
	})
	header := []any{"MODEL", "FROM", "WHEN"}
	for _, name := range names {
		header = append(header, name)
	}
	t := newTable(s.out, header...)
	for _, r := range rows {
		cells := []any{r.model, r.from, r.when}
		for _, name := range names {
			shown := "-"
			if rate, stated := r.rates[name]; stated {
				shown = quota.NanoUSD(rate).String()
			}
			cells = append(cells, shown)
		}
		t.AppendRow(cells)
	}
	t.Render()
}
