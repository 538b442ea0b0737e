package main

import (
	"fmt"
	"math/big"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

func newEstimateCommand(s streams) *cobra.Command {
	var (
		to      connection
		llm     call
		account string
		rules   bool
	)
	cmd := &cobra.Command{
		Use:   "estimate",
		Short: "Count and price a model call without reserving anything",
		Long: `Says what a model call would take: its input part by part, each with a floor, an
expected number and a ceiling and with the method that gave them, its output, and
its cost. The ceilings are what reserve holds.`,
		Example: `  echo 'Hello' | budgetd estimate --model gpt-4o-mini --prompt-file - --max-output-tokens 3000
  budgetd estimate --model claude-sonnet-4-5 --input-tokens 1000 --max-output-tokens 100
  budgetd estimate --provider anthropic --request-file body.json
  budgetd estimate --table`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rules {
				return showRules(s, wantsJSON(cmd, to.json, s.out))
			}
			request := &budgetv1.EstimateRequest{Account: account}
			var err error
			if request.Llm, err = llm.message(cmd); err != nil {
				return err
			}
			if request.Llm == nil {
				return usagef(cmd, "--model or --request-file is missing")
			}
			client, err := to.open(cmd)
			if err != nil {
				return err
			}
			answer, err := client.Service().Estimate(cmd.Context(), connect.NewRequest(request))
			if err != nil {
				return to.explain(err)
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer.Msg)
			}
			showEstimate(s, answer.Msg.Estimate)
			return nil
		},
	}
	to.addFlags(cmd)
	llm.addFlags(cmd)
	cmd.Flags().StringVar(&account, "account", "", "who would be billed; may be left out when the key has one account")
	cmd.Flags().BoolVar(&rules, "table", false, "show instead how well the rules for models without a public tokenizer do; asks no broker")
	return cmd
}

// showProduct is tokens times nano-dollars a million in dollars, exact: lines add
// up to the cost, which alone is rounded up to the nano-dollar.
func showProduct(tokens, perMillion int64) string {
	const digits = 9 + 6 // nano-dollars, a million
	product := new(big.Rat).SetInt(new(big.Int).Mul(big.NewInt(tokens), big.NewInt(perMillion)))
	product.Quo(product, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(digits), nil)))
	whole, fraction, _ := strings.Cut(product.FloatString(digits), ".")
	fraction = strings.TrimRight(fraction, "0")
	return "$" + whole + "." + fraction + strings.Repeat("0", max(2-len(fraction), 0))
}

func showEstimate(s streams, e *budgetv1.CallEstimate) {
	model := e.CatalogueModel
	if model == "" {
		model = "not in the catalogue; the configured ceiling price"
	}
	fmt.Fprintf(s.out, "model    %s\n", model)
	if e.Provider != "" {
		fmt.Fprintf(s.out, "provider %s\n", e.Provider)
	}
	fmt.Fprintln(s.out)
	t := newTable(s.out, "TOKENS", "COUNT", "FLOOR", "EXPECTED", "CEILING", "METHOD")
	t.SetColumnConfigs(rightAligned(2, 3, 4, 5))
	row := func(name, count string, f *budgetv1.TokenFigures, method string) {
		t.AppendRow([]any{name, count, showAmount("", f.GetFloor()), showAmount("", f.GetExpected()), showAmount("", f.GetCeiling()), method})
	}
	for _, part := range e.Parts {
		row("  "+part.Kind, showAmount("", part.Count), part.Tokens, part.Method)
	}
	bound := "the provider will count the same"
	if e.Bound != budgetv1.EstimateBound_ESTIMATE_BOUND_EXACT {
		bound = "the ceiling is held"
	}
	row("input", "", e.Input, bound)
	row("output", "", e.Output, "at most what the call allows")
	t.Render()
	fmt.Fprintln(s.out)
	prices := newTable(s.out, "PRICED AS", "TOKENS", "USD A MILLION", "COST")
	prices.SetColumnConfigs(rightAligned(2, 3, 4))
	for _, line := range e.Lines {
		prices.AppendRow([]any{line.Class, showAmount("", line.Tokens), showAmount("cost", line.NanoUsdPerMillion), showProduct(line.Tokens, line.NanoUsdPerMillion)})
	}
	prices.Render()
	fmt.Fprintf(s.out, "\ncost     at most %s (prices of %s)\n", showAmount("cost", e.CostNanoUsd), e.PriceVersion)
}
