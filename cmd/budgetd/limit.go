package main

import (
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

func newLimitCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limit",
		Short: "Enforce limits, put them into shadow or turn them off",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newLimitSwitchCommand(s, "enforce", "Enforce a limit", budgetv1.LimitMode_LIMIT_MODE_ENFORCE),
		newLimitSwitchCommand(s, "shadow", "Let a limit count and refuse nobody", budgetv1.LimitMode_LIMIT_MODE_SHADOW),
		newLimitSwitchCommand(s, "off", "Let a limit neither refuse nor count", budgetv1.LimitMode_LIMIT_MODE_OFF),
	)
	return cmd
}

func newLimitSwitchCommand(s streams, word, short string, mode budgetv1.LimitMode) *cobra.Command {
	var to connection
	request := &budgetv1.SwitchLimitsRequest{Mode: mode}
	cmd := &cobra.Command{
		Use:   word + " [NAME]",
		Short: short,
		Long: short + `, wherever a limit of the name is unless a plan, a pool or an account
is given: of a pool the name is the pool's. Brokers follow within seconds, without a
restart. The policy that is stored is changed: a file that is applied later states the
mode anew.`,
		Example: "  budgetd limit " + word + " tokens --plan pro\n  budgetd limit " + word + " --all --dry-run",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if request.All == (len(args) == 1) {
				return usagef(cmd, "name a limit, or give --all")
			}
			if len(args) == 1 {
				request.Limit = args[0]
			}
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			answer, err := client.SwitchLimits(cmd.Context(), connect.NewRequest(request))
			if err != nil {
				return to.explain(err)
			}
			warn(s, answer.Msg.Warnings)
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer.Msg)
			}
			change := changeOf(answer.Msg.Change)
			fmt.Fprint(s.out, change.String())
			switch {
			case request.DryRun:
				fmt.Fprintln(s.out, "nothing was changed: dry run")
			case change.Changes():
				fmt.Fprintf(s.out, "policy version %d is in force\n", change.Version)
			default:
				fmt.Fprintf(s.out, "policy version %d stays as it is\n", change.Version)
			}
			return nil
		},
	}
	to.addFlags(cmd)
	cmd.Flags().BoolVar(&request.All, "all", false, "every limit")
	cmd.Flags().StringVar(&request.Plan, "plan", "", "only in this plan")
	cmd.Flags().StringVar(&request.Pool, "pool", "", "only in this pool")
	cmd.Flags().StringVar(&request.Account, "account", "", "only among this account's own limits")
	cmd.Flags().BoolVar(&request.DryRun, "dry-run", false, "print what would change and change nothing")
	return cmd
}

// warn prints what a change of the policy should make people think of.
func warn(s streams, warnings []string) {
	for _, warning := range warnings {
		fmt.Fprintf(s.err, "budgetd: warning: %s\n", warning)
	}
}
