package main

import (
	"crypto/rand"
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
)

func newAdjustCommand(s streams) *cobra.Command {
	var to connection
	request := &budgetv1.AdjustRequest{}
	var amount string
	var newMeter bool
	cmd := &cobra.Command{
		Use:   "adjust ACCOUNT",
		Short: "Change by hand what an account has used",
		Long: `Posts one entry to the ledger that changes what an account has used of a quota,
or of its totals: a goodwill credit, a bill that differs. A negative amount
gives back. Nothing is edited; the entry says who made it and why.

With --key a repeat of the same command adjusts once. Without it a key is made,
and told when the call fails without saying whether it was posted.`,
		Example: `  budgetd adjust acme --limit spend --amount '-$20' --reason "outage on Dec 1" --key ticket-481
  budgetd adjust acme --meter tokens --amount 150000 --reason "provider's bill" --period m2026-11-15`,
		Args: exactArgs("ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Account = args[0]
			stated, err := parseSignedAmount(amount)
			if err != nil {
				return usagef(cmd, "--amount: %v", err)
			}
			request.Amount = stated.n
			switch {
			case request.Limit != "" || request.Meter != "":
			case stated.money:
				request.Meter = string(quota.MeterCost)
			default:
				return usagef(cmd, "say what is adjusted: --limit with a quota, or --meter with a meter of the totals")
			}
			made := request.IdempotencyKey == ""
			if made {
				request.IdempotencyKey = "cli-" + rand.Text()
			}
			client, err := to.open(cmd)
			if err != nil {
				return err
			}
			counted, err := metersOf(cmd.Context(), client.Service(), args[0])
			if err != nil {
				return to.explain(err)
			}
			switch {
			case request.Limit != "":
				err = counted.checkQuota(request.Limit, stated)
			case !newMeter && !counted.counted[request.Meter]:
				return usagef(cmd, "--meter %s: no limit of the account counts it, and nothing was counted of it this month; an entry is for good, so give --new-meter if it is spelled right", request.Meter)
			default:
				err = stated.of(request.Meter)
			}
			if err != nil {
				return usagef(cmd, "--amount: %v", err)
			}
			answer, err := client.Admin().Adjust(cmd.Context(), connect.NewRequest(request))
			if err != nil {
				if made && unsettled(err) {
					return fmt.Errorf("%w\nwhether it was posted is not known: repeat the command with --key %s, and it adjusts once", to.explain(err), request.IdempotencyKey)
				}
				return to.explain(&renamed{err, "idempotencyKey", "--key"})
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer.Msg)
			}
			m := answer.Msg
			done := "adjusted"
			if m.Replayed {
				done = "had been adjusted before"
			}
			fmt.Fprintf(s.out, "%s: %s used in %s is now %s (adjustment %s)\n", done, m.Meter, m.Period, showAmount(m.Meter, m.Used), m.AdjustmentId)
			return nil
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVar(&request.Limit, "limit", "", "`name` of the quota; else the account's totals of a month")
	cmd.Flags().StringVar(&request.Meter, "meter", "", "`meter` of the totals")
	cmd.Flags().StringVar(&request.Scope, "scope", "", "which counter of the quota, as `team=red`")
	cmd.Flags().StringVar(&request.Period, "period", "", "`period`, as m2026-11-15 for a month from an anchor day of 15; the current one unless stated")
	cmd.Flags().StringVar(&amount, "amount", "", "what to add: `'-$20'`, 1M, -500")
	cmd.Flags().BoolVar(&newMeter, "new-meter", false, "the meter may be one that the account's limits and this month's totals do not have")
	cmd.Flags().StringVar(&request.Reason, "reason", "", "why, for the ledger")
	cmd.Flags().StringVar(&request.IdempotencyKey, "key", "", "`name` of this one adjustment, so that a repeat does nothing")
	cmd.AddCommand(newAdjustListCommand(s))
	return cmd
}

// unsettled says that a call failed which may have had its effect all the same.
func unsettled(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeInternal, connect.CodeUnknown:
		return true
	}
	return false
}

func newAdjustListCommand(s streams) *cobra.Command {
	var to connection
	cmd := &cobra.Command{
		Use:   "list ACCOUNT",
		Short: "List adjustments, the newest first",
		Args:  exactArgs("ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			all := &budgetv1.ListAdjustmentsResponse{}
			err = walkPages(func(token string) (string, error) {
				answer, err := client.ListAdjustments(cmd.Context(), connect.NewRequest(&budgetv1.ListAdjustmentsRequest{Account: args[0], PageSize: pageOfLists, PageToken: token}))
				if err != nil {
					return "", to.explain(err)
				}
				all.Adjustments = append(all.Adjustments, answer.Msg.Adjustments...)
				return answer.Msg.NextPageToken, nil
			})
			if err != nil {
				return err
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, all)
			}
			t := newTable(s.out, "WHEN", "LIMIT", "SCOPE", "PERIOD", "METER", "AMOUNT", "BY", "REASON")
			for _, a := range all.Adjustments {
				t.AppendRow([]any{showInstant(a.AdjustedAt), a.Limit, a.Scope, a.Period, a.Meter, showAmount(a.Meter, a.Amount), a.AdjustedBy, a.Reason})
			}
			t.Render()
			return nil
		},
	}
	to.addFlags(cmd)
	return cmd
}
