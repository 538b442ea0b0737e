package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

func newRenewCommand(s streams) *cobra.Command {
	var (
		to      connection
		amounts []string
		lease   time.Duration
		ask     bool
		used    usedFlags
	)
	cmd := &cobra.Command{
		Use:   "renew RESERVATION_ID",
		Short: "Extend a lease, tell what was used so far, and ask how far the call may go",
		Long: `Extends the lease of a reservation. With what the call used so far, in all, or with
--verdict, it answers whether to continue, to wind down within what remains, or to
stop, and which limit decided. What was told never falls, and when the lease ends
without a refund at least that is charged.`,
		Example: `  budgetd renew ID
  budgetd renew ID --amount tokens=2600
  budgetd renew ID --input 200 --output 1400 --lease 5m
  budgetd renew ENVELOPE --verdict`,
		Args: exactArgs("RESERVATION_ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var usage budget.Usage
			if cmd.Flags().Changed("amount") {
				var err error
				if usage.Amounts, err = parseAmounts(cmd, "amount", amounts); err != nil {
					return err
				}
			}
			if err := used.read(cmd, &usage); err != nil {
				return err
			}
			if cmd.Flags().Changed("lease") && lease <= 0 {
				return usagef(cmd, "--lease: %s is not above 0", lease)
			}
			var told *budget.Usage
			if ask || usage.Amounts != nil || usage.Tokens != nil || usage.Units != nil {
				told = &usage
			}
			client, err := to.open(cmd)
			if err != nil {
				return err
			}
			answer, err := client.Renew(cmd.Context(), args[0], lease, told)
			if err != nil {
				return to.explain(err)
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, renewalMessage(answer))
			}
			showRenewal(s, answer)
			return nil
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringArrayVar(&amounts, "amount", nil, "what was used so far in all, `meter=amount`; repeat for more")
	cmd.Flags().DurationVar(&lease, "lease", 0, "how long it lives from now on, 1ms to 24h; as it was reserved if not given")
	cmd.Flags().BoolVar(&ask, "verdict", false, "ask how far the call may go without telling what it used")
	used.add(cmd)
	return cmd
}

// renewalMessage is the answer as the API has it.
func renewalMessage(r budget.Renewal) *budgetv1.RenewResponse {
	return &budgetv1.RenewResponse{
		ExpiresAt: timestamppb.New(r.ExpiresAt), Verdict: budgetv1.RenewVerdict(r.Verdict), Remaining: r.Remaining,
		Reason: r.Reason, Limit: r.Limit, Pool: r.Pool, Scope: r.Scope, Meter: r.Meter,
	}
}

func showRenewal(s streams, r budget.Renewal) {
	fmt.Fprintf(s.out, "expires      %s (in %s)\n", showTime(r.ExpiresAt), time.Until(r.ExpiresAt).Round(time.Second))
	if r.Verdict == budget.NoVerdict {
		return
	}
	why := ""
	switch r.Reason {
	case budgetv1.RenewReason_RENEW_REASON_LIMIT:
		why = ": by the limit " + r.Limit
	case budgetv1.RenewReason_RENEW_REASON_ENVELOPE:
		why = ": by the envelope, limit " + r.Limit
	case budgetv1.RenewReason_RENEW_REASON_ACCOUNT_REMOVED:
		why = ": the account was removed"
	}
	if r.Pool != "" {
		why += " of the pool " + r.Pool
	}
	fmt.Fprintf(s.out, "verdict      %s%s\n", r.Verdict, why)
	if len(r.Remaining) == 0 {
		return
	}
	t := newTable(s.out, "METER", "REMAINING")
	for _, meter := range slices.Sorted(maps.Keys(r.Remaining)) {
		t.AppendRow([]any{meter, showAmount(meter, r.Remaining[meter])})
	}
	t.Render()
}
