package main

import (
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
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
		newLimitUnpinCommand(s),
		newLimitPinsCommand(s),
	)
	return cmd
}

func newLimitSwitchCommand(s streams, word, short string, mode budgetv1.LimitMode) *cobra.Command {
	var to connection
	var span string
	request := &budgetv1.SwitchLimitsRequest{Mode: mode}
	cmd := &cobra.Command{
		Use:   word + " [NAME]",
		Short: short,
		Long: short + `, wherever a limit of the name is unless a plan, a pool or an account
is given: of a pool the name is the pool's. Brokers follow within seconds, without a
restart.

The policy that is stored is changed: a file that is applied later states the mode anew.
With --pin, or --for, the policy stays as it is and the mode lies above it, whatever is
applied, until "budgetd limit unpin" or the time is over.`,
		Example: "  budgetd limit " + word + " tokens --plan pro\n  budgetd limit " + word + " --all --dry-run\n" +
			"  budgetd limit " + word + " --all --for 2h --reason 'provider is down, see INC-42'",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := nameLimit(cmd, args, request.All, &request.Limit); err != nil {
				return err
			}
			if cmd.Flags().Changed("for") {
				d, err := quota.ParseSpan(span, quota.MinPinSpan, quota.MaxPinSpan)
				if err != nil {
					return usagef(cmd, "--for: %v", err)
				}
				request.Pin, request.PinFor = true, durationpb.New(d)
			}
			if request.Reason != "" && !request.Pin {
				return usagef(cmd, "--reason goes with --pin or --for: the policy itself keeps none")
			}
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			answer, err := client.SwitchLimits(cmd.Context(), connect.NewRequest(request))
			if err != nil {
				return to.explain(err)
			}
			return to.showSwitch(cmd, s, answer.Msg, request.DryRun)
		},
	}
	to.addFlags(cmd)
	addPlaceFlags(cmd, &request.All, &request.Plan, &request.Pool, &request.Account, &request.DryRun)
	cmd.Flags().BoolVar(&request.Pin, "pin", false, "hold the mode above the policy, whatever is applied, until \"budgetd limit unpin\"")
	cmd.Flags().StringVar(&span, "for", "", "pin for so long, `1min` to 30 days (as 90min, 2h or 1day); then it ends by itself")
	cmd.Flags().StringVar(&request.Reason, "reason", "", "why, for the list of pins and the history")
	return cmd
}

// addPlaceFlags adds the flags that say which limits are meant.
func addPlaceFlags(cmd *cobra.Command, all *bool, plan, pool, account *string, dryRun *bool) {
	cmd.Flags().BoolVar(all, "all", false, "every limit")
	cmd.Flags().StringVar(plan, "plan", "", "only in this plan")
	cmd.Flags().StringVar(pool, "pool", "", "only in this pool")
	cmd.Flags().StringVar(account, "account", "", "only of this account")
	cmd.Flags().BoolVar(dryRun, "dry-run", false, "print what would change and change nothing")
}

// nameLimit takes the limit from the arguments, unless all are meant.
func nameLimit(cmd *cobra.Command, args []string, all bool, limit *string) error {
	if all == (len(args) == 1) {
		return usagef(cmd, "name a limit, or give --all")
	}
	if len(args) == 1 {
		*limit = args[0]
	}
	return nil
}

// switched is what the calls that change modes answer.
type switched interface {
	proto.Message
	GetChange() *budgetv1.PolicyChange
	GetWarnings() []string
}

// showSwitch prints what a change of modes did, or would do.
func (c *connection) showSwitch(cmd *cobra.Command, s streams, answer switched, dryRun bool) error {
	warn(s, answer.GetWarnings())
	if wantsJSON(cmd, c.json, s.out) {
		return printJSON(s.out, answer)
	}
	change := changeOf(answer.GetChange())
	fmt.Fprint(s.out, change.String())
	switch {
	case dryRun:
		fmt.Fprintln(s.out, "nothing was changed: dry run")
	case change.Changes():
		fmt.Fprintf(s.out, "policy version %d is in force\n", change.Version)
	default:
		fmt.Fprintf(s.out, "policy version %d stays as it is\n", change.Version)
	}
	return nil
}

// warn prints what a change of the policy should make people think of.
func warn(s streams, warnings []string) {
	for _, warning := range warnings {
		fmt.Fprintf(s.err, "budgetd: warning: %s\n", warning)
	}
}
