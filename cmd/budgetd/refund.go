package main

import (
	"fmt"
	"sort"

	"github.com/spf13/cobra"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

func newRefundCommand(s streams) *cobra.Command {
	var (
		to      connection
		amounts []string
		unused  bool
		classes budgetv1.TokenClasses
		values  [5]int64
	)
	cmd := &cobra.Command{
		Use:   "refund RESERVATION_ID",
		Short: "Report what a call used and give back the rest",
		Long: `Closes a reservation: what was held above the usage goes back, what was used above
the hold is charged. A meter that was held and is not reported counts as used in
full. Repeating a refund is safe and gives the first answer.`,
		Example: `  budgetd refund ID --amount tokens=1600
  budgetd refund ID --input 200 --cache-read 800 --output 100
  budgetd refund ID --unused`,
		Args: exactArgs("RESERVATION_ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			usage := budget.Usage{Unused: unused}
			if cmd.Flags().Changed("amount") {
				var err error
				if usage.Amounts, err = parseAmounts(cmd, "amount", amounts); err != nil {
					return err
				}
			}
			for i, class := range []struct {
				flag string
				to   **int64
			}{{"input", &classes.Input}, {"cache-read", &classes.CacheRead}, {"cache-write", &classes.CacheWrite}, {"output", &classes.Output}, {"reasoning", &classes.Reasoning}} {
				if cmd.Flags().Changed(class.flag) {
					*class.to, usage.Tokens = &values[i], &classes
				}
			}
			if !unused && usage.Amounts == nil && usage.Tokens == nil {
				return usagef(cmd, "say what was used with --amount or token classes, or --unused")
			}
			client, err := to.open(cmd)
			if err != nil {
				return err
			}
			answer, err := client.Refund(cmd.Context(), args[0], usage)
			if err != nil {
				return to.explain(err)
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer)
			}
			showReceipt(s, answer)
			return nil
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringArrayVar(&amounts, "amount", nil, "what was used, `meter=amount`; repeat for more")
	cmd.Flags().BoolVar(&unused, "unused", false, "the call was not made: give everything back")
	cmd.Flags().Int64Var(&values[0], "input", 0, "input tokens that no cache had part in")
	cmd.Flags().Int64Var(&values[1], "cache-read", 0, "input tokens read from the provider's cache")
	cmd.Flags().Int64Var(&values[2], "cache-write", 0, "input tokens written to the provider's cache")
	cmd.Flags().Int64Var(&values[3], "output", 0, "output tokens without reasoning")
	cmd.Flags().Int64Var(&values[4], "reasoning", 0, "output tokens spent on reasoning")
	return cmd
}

func showReceipt(s streams, m *budgetv1.RefundResponse) {
	if m.Late {
		fmt.Fprintln(s.out, "late: the lease had ended; charged all the same")
	}
	if m.Replayed {
		fmt.Fprintln(s.out, "known already: this is the first answer")
	}
	meters := map[string]bool{}
	for _, amounts := range []map[string]int64{m.Charged, m.GivenBack, m.Overrun} {
		for meter := range amounts {
			meters[meter] = true
		}
	}
	names := make([]string, 0, len(meters))
	for meter := range meters {
		names = append(names, meter)
	}
	sort.Strings(names)
	t := newTable(s.out, "METER", "CHARGED", "GIVEN BACK", "OVERRUN")
	for _, meter := range names {
		t.AppendRow([]any{meter, showAmount(meter, m.Charged[meter]), showAmount(meter, m.GivenBack[meter]), showAmount(meter, m.Overrun[meter])})
	}
	t.Render()
	showHolds(s, m.Holds)
}
