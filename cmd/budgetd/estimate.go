package main

import (
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

func newEstimateCommand(s streams) *cobra.Command {
	var (
		to      connection
		llm     call
		account string
	)
	cmd := &cobra.Command{
		Use:   "estimate",
		Short: "Count and price a model call without reserving anything",
		Example: `  echo 'Hello' | budgetd estimate --model gpt-4o-mini --prompt-file - --max-output-tokens 3000
  budgetd estimate --model claude-sonnet-4-5 --input-tokens 1000 --max-output-tokens 100`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			request := &budgetv1.EstimateRequest{Account: account}
			var err error
			if request.Llm, err = llm.message(cmd); err != nil {
				return err
			}
			if request.Llm == nil {
				return usagef(cmd, "--model is missing")
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
	return cmd
}

func showEstimate(s streams, e *budgetv1.CallEstimate) {
	bound := "the provider will count the same"
	if e.Bound != budgetv1.EstimateBound_ESTIMATE_BOUND_EXACT {
		bound = "a ceiling"
	}
	method := "stated"
	switch e.Method {
	case budgetv1.EstimateMethod_ESTIMATE_METHOD_TOKENIZER:
		method = "counted with " + e.Encoding
	case budgetv1.EstimateMethod_ESTIMATE_METHOD_RULE:
		method = "by a rule for models without a public tokenizer"
	}
	model := e.CatalogueModel
	if model == "" {
		model = "not in the catalogue; the configured ceiling price"
	}
	fmt.Fprintf(s.out, "model          %s\n", model)
	fmt.Fprintf(s.out, "input tokens   %s (%s; %s)\n", showAmount("", e.InputTokens), method, bound)
	fmt.Fprintf(s.out, "output tokens  at most %s\n", showAmount("", e.MaxOutputTokens))
	fmt.Fprintf(s.out, "cost           at most %s (prices of %s)\n", showAmount("cost", e.CostNanoUsd), e.PriceVersion)
}
