package main

import (
	"fmt"
	"maps"
	"slices"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

func newReservationCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reservation",
		Short: "List open reservations, and release what hangs",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newReservationListCommand(s), newReservationReleaseCommand(s))
	return cmd
}

func newReservationListCommand(s streams) *cobra.Command {
	var to connection
	cmd := &cobra.Command{
		Use:   "list ACCOUNT",
		Short: "List the open reservations of an account",
		Args:  exactArgs("ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			all := &budgetv1.ListReservationsResponse{}
			seen := map[string]bool{}
			err = walkPages(func(token string) (string, error) {
				answer, err := client.ListReservations(cmd.Context(), connect.NewRequest(&budgetv1.ListReservationsRequest{Account: args[0], PageSize: pageOfLists, PageToken: token}))
				if err != nil {
					return "", to.explain(err)
				}
				for _, r := range answer.Msg.Reservations {
					if !seen[r.ReservationId] { // a walk may show one twice
						seen[r.ReservationId] = true
						all.Reservations = append(all.Reservations, r)
					}
				}
				return answer.Msg.NextPageToken, nil
			})
			if err != nil {
				return err
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, all)
			}
			t := newTable(s.out, "MADE", "LEASE ENDS", "LABELS", "HOLDS", "RESERVATION")
			for _, r := range all.Reservations {
				t.AppendRow([]any{showInstant(r.CreatedAt), showInstant(r.ExpiresAt), showAllLabels(r.Labels), showHeld(r.Holds), r.ReservationId})
			}
			t.Render()
			return nil
		},
	}
	to.addFlags(cmd)
	return cmd
}

func newReservationReleaseCommand(s streams) *cobra.Command {
	var to connection
	request := &budgetv1.ReleaseReservationRequest{}
	cmd := &cobra.Command{
		Use:   "release RESERVATION_ID",
		Short: "End an open reservation and give everything back",
		Long: `Ends a reservation as an operator: everything that it holds is given back, and
nothing is charged. A Refund of its caller afterwards is refused. Leases end by
themselves; this is for those that are too long to wait for. The broker logs who
released it and why.`,
		Example: `  budgetd reservation release $ID --reason "the worker was removed"`,
		Args:    exactArgs("RESERVATION_ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			request.ReservationId = args[0]
			answer, err := client.ReleaseReservation(cmd.Context(), connect.NewRequest(request))
			if err != nil {
				return to.explain(err)
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer.Msg)
			}
			fmt.Fprintln(s.out, "released")
			for _, meter := range slices.Sorted(maps.Keys(answer.Msg.GivenBack)) {
				fmt.Fprintf(s.out, "  %s %s given back\n", showAmount(meter, answer.Msg.GivenBack[meter]), meter)
			}
			return nil
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVar(&request.Reason, "reason", "", "why, for the log")
	return cmd
}
