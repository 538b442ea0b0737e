package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/estimator/catalogue"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// cataloguePage is what prices catalogue prints as JSON: the catalogue's own
// format with its version, and the providers and models that were asked for.
type cataloguePage struct {
	Version string `json:"version"`
	catalogue.File
}

func newPricesCatalogueCommand(s streams) *cobra.Command {
	var provider string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "catalogue [MODEL]",
		Short: "Show the prices of the built-in catalogue",
		Long: `Shows the prices that this program has built in, with their version, date and
sources. A model matches when its id or another of its names has MODEL in it. Asks
no broker: prices of the policy (prices list) and of a prices file go before these.`,
		Example: `  budgetd prices catalogue gpt-4o-mini
  budgetd prices catalogue --provider anthropic --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef(cmd, "%q is one too many: give one MODEL", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			model := ""
			if len(args) > 0 {
				model = args[0]
			}
			page, err := catalogueOf(provider, model)
			if err != nil {
				return err
			}
			if len(page.Providers) == 0 {
				return fmt.Errorf("the catalogue %s has no such model; leave out a part of its name, or --provider", page.Version)
			}
			if wantsJSON(cmd, asJSON, s.out) {
				return json.NewEncoder(s.out).Encode(page)
			}
			showCatalogue(s, page)
			return nil
		},
	}
	cmd.Flags().StringVar(&provider, "provider", "", "only models of this `provider`, by its id or alias")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// catalogueOf returns the part of the embedded catalogue that is asked for.
func catalogueOf(provider, model string) (cataloguePage, error) {
	data := catalogue.Embedded()
	file, err := catalogue.Decode(data)
	if err != nil {
		return cataloguePage{}, err
	}
	page := cataloguePage{Version: file.Version(data), File: file}
	page.Providers = nil
	provider, model = strings.ToLower(provider), strings.ToLower(model)
	for _, p := range file.Providers {
		if provider != "" && p.ID != provider && !slices.Contains(p.Aliases, provider) {
			continue
		}
		p.Models = slices.DeleteFunc(p.Models, func(m catalogue.Model) bool {
			return !slices.ContainsFunc(append([]string{m.ID}, m.Names...), func(name string) bool {
				return strings.Contains(strings.ToLower(name), model)
			})
		})
		if len(p.Models) > 0 {
			page.Providers = append(page.Providers, p)
		}
	}
	return page, nil
}

// rowsOf are the prices of a model: each from its day, then by bound of input and
// by service.
func rowsOf(provider string, m *catalogue.Model) []priceRow {
	var rows []priceRow
	for _, price := range m.Prices {
		base := priceRow{model: provider + "/" + m.ID, from: price.From}
		add := func(when string, rates catalogue.Rates, tiers []catalogue.Tier) {
			bounds := make([]*budgetv1.PriceTier, len(tiers))
			for i, tier := range tiers {
				bounds[i] = &budgetv1.PriceTier{Above: tier.Above, Rates: tier.Rates}
			}
			rows = append(rows, base.with(when, rates, bounds)...)
		}
		add("", price.Rates, price.Tiers)
		for _, service := range price.Services {
			add(service.Name, service.Rates, service.Tiers)
		}
	}
	return rows
}

func showCatalogue(s streams, page cataloguePage) {
	fmt.Fprintf(s.out, "version  %s\nas of    %s\n", page.Version, page.AsOf)
	for _, source := range page.Sources {
		fmt.Fprintf(s.out, "source   %s of %s (%s): %s\n", source.Name, source.Date, source.Licence, source.Used)
	}
	fmt.Fprint(s.out, "\nDollars per million tokens, per hour of second, per thousand of other units.\n\n")
	var rows []priceRow
	for _, p := range page.Providers {
		for i := range p.Models {
			rows = append(rows, rowsOf(p.ID, &p.Models[i])...)
		}
	}
	showPrices(s, rows, slices.Concat(catalogue.Classes[:], catalogue.Units[:]))
}
