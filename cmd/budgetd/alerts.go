package main

import (
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

func newAlertsCommand(s streams) *cobra.Command {
	var to connection
	request := &budgetv1.ListAlertsRequest{}
	var most int
	cmd := &cobra.Command{
		Use:     "alerts",
		Short:   "List the thresholds of quotas that were reached",
		Example: `  budgetd alerts --account acme`,
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 1 || most > pageOfLists {
				return usagef(cmd, "--most %d: want 1 to %d", most, pageOfLists)
			}
			request.PageSize = int32(most)
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			answer, err := client.ListAlerts(cmd.Context(), connect.NewRequest(request))
			if err != nil {
				return to.explain(err)
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer.Msg)
			}
			t := newTable(s.out, "RAISED", "ACCOUNT", "LIMIT", "SCOPE", "PERIOD", "AT", "USED", "OF", "DELIVERY")
			for _, a := range answer.Msg.Alerts {
				t.AppendRow([]any{
					showInstant(a.RaisedAt), a.Account, a.Limit, a.Scope, a.Period, fmt.Sprintf("%d%%", a.Percent),
					showAmount(a.Meter, a.Used), showAmount(a.Meter, a.LimitAmount), a.Delivery,
				})
			}
			t.Render()
			return nil
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVar(&request.Account, "account", "", "only this account; else every one")
	cmd.Flags().IntVar(&most, "most", 100, "how many, the newest first")
	return cmd
}
