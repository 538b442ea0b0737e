package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
)

func newPricesCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prices",
		Short: "Show and set prices of models, and correct what was charged",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPricesListCommand(s), newPricesCatalogueCommand(s), newPricesSetCommand(s), newPricesCorrectCommand(s))
	return cmd
}

// listPrices reads every price of a model, or of all.
func listPrices(cmd *cobra.Command, to *connection, provider, model string) (*budgetv1.ListPricesResponse, error) {
	client, err := to.openAdmin(cmd)
	if err != nil {
		return nil, err
	}
	all := &budgetv1.ListPricesResponse{}
	err = walkPages(func(token string) (string, error) {
		answer, err := client.ListPrices(cmd.Context(), connect.NewRequest(&budgetv1.ListPricesRequest{Provider: provider, Model: model, PageSize: pageOfLists, PageToken: token}))
		if err != nil {
			return "", to.explain(err)
		}
		all.Prices = append(all.Prices, answer.Msg.Prices...)
		if token == "" {
			all.PolicyVersion = answer.Msg.PolicyVersion
		}
		return answer.Msg.NextPageToken, nil
	})
	return all, err
}

func newPricesListCommand(s streams) *cobra.Command {
	var to connection
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the prices that the policy states",
		Long: `Lists the prices that the policy states, which go before those of the built-in
catalogue. Rates are dollars per million tokens, and each for an image, a second, a
page, a search and a request. Bounds of input and service tiers have rows of their
own, with what they state.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := listPrices(cmd, &to, "", "")
			if err != nil {
				return err
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, all)
			}
			var rows []priceRow
			for _, price := range all.Prices {
				rows = append(rows, policyRows(price)...)
			}
			showPrices(s, rows, quota.PriceNames)
			return nil
		},
	}
	to.addFlags(cmd)
	return cmd
}

// policyRows are the rows of one price of the policy.
func policyRows(price *budgetv1.ModelPrice) []priceRow {
	base := priceRow{model: price.Provider + "/" + price.Model, from: showInstant(price.From)}
	rows := base.with("", price.Rates, price.Tiers)
	for _, service := range price.Services {
		rows = append(rows, base.with(service.Name, service.Rates, service.Tiers)...)
	}
	return rows
}

// priceOf reads a price as the broker lists it.
func priceOf(p *budgetv1.ModelPrice) quota.ModelPrice {
	price := quota.ModelPrice{Provider: p.Provider, Model: p.Model, From: p.From.AsTime(), Rates: ratesOf(p.Rates), Tiers: tiersOf(p.Tiers)}
	for _, s := range p.Services {
		price.Services = append(price.Services, quota.PriceService{Name: s.Name, Rates: ratesOf(s.Rates), Tiers: tiersOf(s.Tiers)})
	}
	return price
}

func ratesOf(rates map[string]int64) map[string]quota.NanoUSD {
	out := make(map[string]quota.NanoUSD, len(rates))
	for name, rate := range rates {
		out[name] = quota.NanoUSD(rate)
	}
	return out
}

func tiersOf(tiers []*budgetv1.PriceTier) (out []quota.PriceTier) {
	for _, tier := range tiers {
		out = append(out, quota.PriceTier{Above: quota.Tokens(tier.Above), Rates: ratesOf(tier.Rates)})
	}
	return out
}

func newPricesSetCommand(s streams) *cobra.Command {
	var to connection
	var from string
	rates := map[string]*string{}
	cmd := &cobra.Command{
		Use:   "set PROVIDER/MODEL",
		Short: "State what a model costs from an instant on",
		Long: `States what a model costs, in dollars per million tokens and each by unit, for the
reservations that are made from an instant on. What was charged before stays as it
is: see prices correct. Prices of long inputs and of service tiers are stated in a
policy file, with apply.`,
		Example: `  budgetd prices set openai/gpt-4o-mini --from 2026-12-01 --input '$0.15' --output '$0.60' --cache-read '$0.075'`,
		Args:    exactArgs("PROVIDER/MODEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			provider, model, ok := strings.Cut(args[0], "/")
			if !ok {
				return usagef(cmd, "%q: want PROVIDER/MODEL, such as openai/gpt-4o-mini", args[0])
			}
			at, err := parseInstant(from, time.Now())
			if err != nil {
				return usagef(cmd, "--from: %v", err)
			}
			price := quota.ModelPrice{Provider: provider, Model: model, From: at.Truncate(time.Second), Rates: map[string]quota.NanoUSD{}}
			for class, text := range rates {
				if !cmd.Flags().Changed(flagOf(class)) {
					continue
				}
				amount, err := parseAmount(string(quota.MeterCost), *text)
				if err != nil {
					return usagef(cmd, "--%s: %v", flagOf(class), err)
				}
				price.Rates[class] = quota.NanoUSD(amount)
			}
			if err := price.Validate(); err != nil {
				return usagef(cmd, "%v", err)
			}
			answer, prices, err := setPrice(cmd, &to, price)
			if err != nil {
				return err
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer)
			}
			fmt.Fprintf(s.out, "%s has %d prices (policy version %d)\n", args[0], prices, answer.Change.GetVersion())
			return nil
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVar(&from, "from", "now", "`instant` from which it holds: a date, RFC 3339, today, this-month")
	for _, class := range quota.PriceClasses {
		rates[class] = cmd.Flags().String(flagOf(class), "", "dollars per million tokens, as `'$0.15'`")
	}
	for _, unit := range quota.PriceUnits {
		rates[unit] = cmd.Flags().String(flagOf(unit), "", "dollars each, as `'$0.01'`")
	}
	return cmd
}

// setPrice adds a price to those that its model has, or replaces the one of the
// same instant, and says how many there are then. A policy file states all
// prices of a model: when somebody else changed the policy in between, it looks
// again, so that nobody's price is lost.
func setPrice(cmd *cobra.Command, to *connection, price quota.ModelPrice) (*budgetv1.ApplyPolicyResponse, int, error) {
	client, err := to.openAdmin(cmd)
	if err != nil {
		return nil, 0, err
	}
	for last := int64(-1); ; {
		known, err := listPrices(cmd, to, price.Provider, price.Model)
		if err != nil {
			return nil, 0, err
		}
		document := &policyfile.Document{Prices: []quota.ModelPrice{price}}
		for _, p := range known.Prices {
			if p.From.AsTime().Equal(price.From) {
				continue
			}
			document.Prices = append(document.Prices, priceOf(p))
		}
		slices.SortFunc(document.Prices, func(a, b quota.ModelPrice) int { return a.From.Compare(b.From) })
		text, err := policyfile.Marshal(document)
		if err != nil {
			return nil, 0, err
		}
		answer, err := client.ApplyPolicy(cmd.Context(), connect.NewRequest(&budgetv1.ApplyPolicyRequest{Policy: string(text), IfVersion: &known.PolicyVersion}))
		switch moved := known.PolicyVersion != last; {
		case err == nil:
			return answer.Msg, len(document.Prices), nil
		case connect.CodeOf(err) != connect.CodeFailedPrecondition || !moved:
			return nil, 0, to.explain(err)
		}
		last = known.PolicyVersion
	}
}

func flagOf(class string) string { return strings.ReplaceAll(class, "_", "-") }

func newPricesCorrectCommand(s streams) *cobra.Command {
	var to connection
	var from, until string
	request := &budgetv1.CorrectPricesRequest{}
	cmd := &cobra.Command{
		Use:   "correct PROVIDER/MODEL",
		Short: "Reprice what was charged in a span, with adjusting entries",
		Long: `Computes the cost of each closing of the model whose reservation was made in the
span, at the price in force for its instant now, and posts the difference to
what was charged as further entries. Nothing is edited; doing it again changes
nothing. Calls whose cost was stated by their callers stay as they are.`,
		Example: `  budgetd prices correct openai/gpt-4o-mini --from 2026-12-01 --to now --dry-run
  budgetd prices correct openai/gpt-4o-mini --from 2026-12-01 --to now --reason "price cut"`,
		Args: exactArgs("PROVIDER/MODEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var ok bool
			if request.Provider, request.Model, ok = strings.Cut(args[0], "/"); !ok {
				return usagef(cmd, "%q: want PROVIDER/MODEL, such as openai/gpt-4o-mini", args[0])
			}
			now := time.Now()
			begin, err := parseInstant(from, now)
			if err != nil {
				return usagef(cmd, "--from: %v", err)
			}
			end, err := parseInstant(until, now)
			if err != nil {
				return usagef(cmd, "--to: %v", err)
			}
			if begin.IsZero() {
				return usagef(cmd, "--from is missing")
			}
			request.From, request.To = timestamppb.New(begin), timestamppb.New(end)
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			stream, err := client.CorrectPrices(cmd.Context(), connect.NewRequest(request))
			if err != nil {
				return to.explain(err)
			}
			defer stream.Close()
			bar := newReplayBar(s.err)
			bar.Stage("repricing", 0)
			var last *budgetv1.CorrectPricesResponse
			for stream.Receive() {
				next := stream.Msg()
				bar.Add(int(next.Looked - last.GetLooked()))
				last = next
			}
			bar.finish()
			if err := stream.Err(); err != nil {
				return to.explain(err)
			}
			if !last.GetDone() {
				return errors.New("the broker ended the correction early; doing it again goes on where it ended")
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, last)
			}
			done := "repriced"
			if request.DryRun {
				done = "would be repriced"
			}
			fmt.Fprintf(s.out, "%d of %d closings %s, %d left as they are; %s in all\n", last.Repriced, last.Looked, done, last.Skipped, quota.NanoUSD(last.DifferenceNanoUsd))
			return nil
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVar(&request.Account, "account", "", "only this account; else every one")
	cmd.Flags().StringVar(&from, "from", "", "first `instant` of the span")
	cmd.Flags().StringVar(&until, "to", "now", "`instant` at which it ends")
	cmd.Flags().StringVar(&request.Reason, "reason", "", "why, for the ledger")
	cmd.Flags().BoolVar(&request.DryRun, "dry-run", false, "only say what would be posted")
	return cmd
}
