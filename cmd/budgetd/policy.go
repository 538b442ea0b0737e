package main

import (
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

func newPolicyCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show the policy in force and who changed it",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyShowCommand(s), newPolicyHistoryCommand(s))
	return cmd
}

func newPolicyShowCommand(s streams) *cobra.Command {
	var to connection
	var plansOnly bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the policy as YAML, as apply takes it",
		Args:  exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			answer, err := client.GetPolicy(cmd.Context(), connect.NewRequest(&budgetv1.GetPolicyRequest{OmitAccounts: plansOnly}))
			if err != nil {
				return to.explain(err)
			}
			if to.json {
				return printJSON(s.out, answer.Msg)
			}
			showPinsAbove(s, answer.Msg.Pins)
			fmt.Fprint(s.out, answer.Msg.Policy)
			return nil
		},
	}
	to.addFlags(cmd)
	cmd.Flags().BoolVar(&plansOnly, "no-accounts", false, "leave the accounts out")
	return cmd
}

func newPolicyHistoryCommand(s streams) *cobra.Command {
	var to connection
	var most int
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show who changed what of the policy, the newest first",
		Args:  exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 1 || most > 100 {
				return usagef(cmd, "--most %d: want 1 to 100", most)
			}
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			answer, err := client.ListPolicyChanges(cmd.Context(), connect.NewRequest(&budgetv1.ListPolicyChangesRequest{PageSize: int32(most)}))
			if err != nil {
				return to.explain(err)
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer.Msg)
			}
			for _, change := range answer.Msg.Changes {
				fmt.Fprintf(s.out, "version %d, %s, by %s\n", change.Version, showInstant(change.ChangedAt), change.ChangedBy)
				for _, object := range change.Objects {
					fmt.Fprintf(s.out, "  %s %s %s\n", objectActions[object.Action], object.Kind, object.Name)
					added := object.Action == budgetv1.PolicyAction_POLICY_ACTION_ADDED && object.Kind == "pin"
					if object.Action != budgetv1.PolicyAction_POLICY_ACTION_CHANGED && !added {
						continue
					}
					for _, field := range object.Fields {
						if added {
							fmt.Fprintf(s.out, "      %s: %s\n", field.Path, field.New)
							continue
						}
						fmt.Fprintf(s.out, "      %s: %s -> %s\n", field.Path, orDash(field.Old), orDash(field.New))
					}
				}
			}
			return nil
		},
	}
	to.addFlags(cmd)
	cmd.Flags().IntVar(&most, "most", 20, "how many changes")
	return cmd
}

var objectActions = map[budgetv1.PolicyAction]string{
	budgetv1.PolicyAction_POLICY_ACTION_ADDED:     "added",
	budgetv1.PolicyAction_POLICY_ACTION_CHANGED:   "changed",
	budgetv1.PolicyAction_POLICY_ACTION_REMOVED:   "removed",
	budgetv1.PolicyAction_POLICY_ACTION_UNCHANGED: "kept",
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
