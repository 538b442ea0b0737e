package main

import (
	"cmp"
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
)

func newLimitUnpinCommand(s streams) *cobra.Command {
	var to connection
	request := &budgetv1.UnpinLimitsRequest{}
	cmd := &cobra.Command{
		Use:   "unpin [NAME]",
		Short: "Let a pinned limit go: the policy's mode counts again",
		Long: `Takes away what "budgetd limit off --pin" and its likes pinned: the pins that name
the limit, wherever they hold it unless a plan, a pool or an account is given, or
with --all every pin. Brokers follow within seconds, without a restart.`,
		Example: "  budgetd limit unpin --all\n  budgetd limit unpin tokens --plan pro",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := nameLimit(cmd, args, request.All, &request.Limit); err != nil {
				return err
			}
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			answer, err := client.UnpinLimits(cmd.Context(), connect.NewRequest(request))
			if err != nil {
				return to.explain(err)
			}
			return to.showSwitch(cmd, s, answer.Msg, request.DryRun)
		},
	}
	to.addFlags(cmd)
	addPlaceFlags(cmd, &request.All, &request.Plan, &request.Pool, &request.Account, &request.DryRun)
	return cmd
}

func newLimitPinsCommand(s streams) *cobra.Command {
	var to connection
	cmd := &cobra.Command{
		Use:   "pins",
		Short: "List the pins: limits held at a mode, whatever the policy states",
		Args:  exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			answer, err := client.ListPins(cmd.Context(), connect.NewRequest(&budgetv1.ListPinsRequest{}))
			if err != nil {
				return to.explain(err)
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer.Msg)
			}
			if len(answer.Msg.Pins) == 0 {
				fmt.Fprintln(s.out, "nothing is pinned: every limit has the mode that the policy states")
				return nil
			}
			t := newTable(s.out, "LIMIT", "WHERE", "MODE", "BY", "SINCE", "ENDS", "REASON")
			for _, pin := range answer.Msg.Pins {
				reason := pin.Reason
				if pin.Idle {
					reason = cmp.Or(reason, "-") + " [the policy has no such limit now]"
				}
				t.AppendRow([]any{cmp.Or(pin.Limit, "(every)"), wherePinned(pin), showMode(pin.Mode), pin.PinnedBy, showInstant(pin.Since), showInstant(pin.Until), orDash(reason)})
			}
			t.Render()
			return nil
		},
	}
	to.addFlags(cmd)
	return cmd
}

// wherePinned is the place of a pin for a table.
func wherePinned(pin *budgetv1.LimitPin) string {
	switch {
	case pin.Plan != "":
		return "plan " + pin.Plan
	case pin.Pool != "":
		return "pool " + pin.Pool
	case pin.Account != "":
		return "account " + pin.Account
	}
	return "everywhere"
}

// pinOf is a pin of an answer.
func pinOf(pin *budgetv1.LimitPin) quota.Pin {
	return quota.Pin{
		Limit: pin.Limit, Plan: pin.Plan, Pool: pin.Pool, Account: pin.Account, Mode: quota.Mode(showMode(pin.Mode)),
		By: pin.PinnedBy, Reason: pin.Reason, Since: instant(pin.Since), Until: instant(pin.Until),
	}
}

// showPinsAbove prints pins as comments of a policy file, which states the modes
// beneath them.
func showPinsAbove(s streams, pins []*budgetv1.LimitPin) {
	for _, pin := range pins {
		fmt.Fprintf(s.out, "# Pinned %s.\n", pinOf(pin))
	}
	if len(pins) > 0 {
		fmt.Fprintln(s.out, "# What follows states the modes beneath; \"budgetd limit unpin\" lets them count.")
	}
}
