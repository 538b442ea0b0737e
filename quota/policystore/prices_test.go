package policystore

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/budgetd/budgetd/quota/policyfile"
)

// Prices come in pages, of one model, of a provider's, or all of them, with a
// version that guards a change of what was read.
func TestPrices(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		store := Open(open(), nil)
		apply(t, store, `
prices:
  openai/a:
    - {from: 2026-01-01, input: $1, output: $2}
    - {from: 2026-02-01, input: $2, output: $3}
    - {from: 2026-03-01, input: $3, output: $4}
  openai/b:
    - {from: 2026-01-01, input: $4, output: $5}
  other/a:
    - {from: 2026-01-01, input: $5, output: $6}
`)
		for _, c := range []struct {
			query PricesQuery
			want  string
		}{
			{PricesQuery{Limit: 100}, "openai/a 1 openai/a 2 openai/a 3 openai/b 4 other/a 5 "},
			{PricesQuery{Limit: 2}, "openai/a 1 openai/a 2 more"},
			{PricesQuery{Limit: 2, Skip: 2}, "openai/a 3 openai/b 4 more"},
			{PricesQuery{Limit: 2, Skip: 3}, "openai/b 4 other/a 5 "},
			{PricesQuery{Limit: 1, Skip: 4}, "other/a 5 "},
			{PricesQuery{Limit: 1, Skip: 9}, ""},
			{PricesQuery{Limit: 3, Provider: "openai"}, "openai/a 1 openai/a 2 openai/a 3 more"},
			{PricesQuery{Limit: 9, Model: "a", Skip: 2}, "openai/a 3 other/a 5 "},
			{PricesQuery{Limit: 9, Provider: "openai", Model: "b"}, "openai/b 4 "},
			{PricesQuery{Limit: 9, Provider: "openai", Model: "B"}, ""},
		} {
			page, err := store.Prices(t.Context(), c.query)
			got := ""
			for _, price := range page.Prices {
				got += fmt.Sprintf("%s %d ", price.Name(), price.Rates["input"]/1_000_000_000)
			}
			if page.More {
				got += "more"
			}
			if err != nil || got != c.want || page.Version != 1 {
				t.Errorf("%+v: %q at version %d, %v; want %q", c.query, got, page.Version, err, c.want)
			}
		}
		if _, err := store.Prices(t.Context(), PricesQuery{Limit: MaxPage + 1}); err == nil {
			t.Error("a page that is too large is read")
		}
		page, err := store.Prices(t.Context(), PricesQuery{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		apply(t, store, "prices:\n  openai/a:\n    - {from: 2026-04-01, input: $9, output: $9}\n")
		document := &policyfile.Document{Prices: page.Prices}
		if _, err := store.Apply(t.Context(), document, Options{By: "test", IfVersion: &page.Version}); err == nil {
			t.Error("a price that came meanwhile is lost")
		}
	})
}
