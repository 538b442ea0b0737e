package main

import (
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

func newGrantCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "grant",
		Short: "Add to an account's quota for a while, or take it away",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGrantAddCommand(s), newGrantListCommand(s), newGrantRemoveCommand(s))
	return cmd
}

func newGrantAddCommand(s streams) *cobra.Command {
	var (
		to                  connection
		amount, from, until string
		priority            int
	)
	grant := &budgetv1.Grant{}
	cmd := &cobra.Command{
		Use:   "add ACCOUNT NAME",
		Short: "Add a grant",
		Long: `Adds a top-up, a promotion or a credit to an account's quota. What one period
leaves of it is there in the next, until it ends. The same command again changes
nothing.`,
		Example: `  budgetd grant add acme top-up-dec --limit spend --amount '$50' --until 2027-03-01
  budgetd grant add acme promo --limit tokens --amount 1M --priority -1 --reason welcome`,
		Args: exactArgs("ACCOUNT", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			grant.Name = args[1]
			stated, err := parseSignedAmount(amount)
			if err != nil {
				return usagef(cmd, "--amount: %v", err)
			}
			grant.Amount, grant.Priority = stated.n, int32(min(max(priority, -1000), 1000))
			now := time.Now()
			for _, instant := range []struct {
				flag, text string
				field      **timestamppb.Timestamp
			}{{"from", from, &grant.From}, {"until", until, &grant.Until}} {
				at, err := parseInstant(instant.text, now)
				if err != nil {
					return usagef(cmd, "--%s: %v", instant.flag, err)
				}
				if !at.IsZero() {
					*instant.field = timestamppb.New(at.Truncate(time.Microsecond))
				}
			}
			client, err := to.open(cmd)
			if err != nil {
				return err
			}
			counted, err := metersOf(cmd.Context(), client.Service(), args[0])
			if err != nil {
				return to.explain(err)
			}
			if err := counted.checkQuota(grant.Limit, stated); err != nil {
				return usagef(cmd, "--amount: %v", err)
			}
			answer, err := client.Admin().AddGrant(cmd.Context(), connect.NewRequest(&budgetv1.AddGrantRequest{Account: args[0], Grant: grant}))
			if err != nil {
				return to.explain(err)
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer.Msg)
			}
			fmt.Fprintf(s.out, "account %s has grant %s (policy version %d)\n", args[0], grant.Name, answer.Msg.PolicyVersion)
			return nil
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVar(&grant.Limit, "limit", "", "`name` of the quota")
	cmd.Flags().StringVar(&grant.Scope, "scope", "", "which counter of the quota, as `team=red`")
	cmd.Flags().StringVar(&amount, "amount", "", "what it adds: `'$50'`, 1M, 500")
	cmd.Flags().StringVar(&from, "from", "", "`instant` from which it counts; now unless stated")
	cmd.Flags().StringVar(&until, "until", "", "`instant` at which it ends; never unless stated")
	cmd.Flags().IntVar(&priority, "priority", 0, "-100 to 100; below 0 is used before the quota's own amount")
	cmd.Flags().StringVar(&grant.Reason, "reason", "", "why")
	return cmd
}

func newGrantListCommand(s streams) *cobra.Command {
	var to connection
	cmd := &cobra.Command{
		Use:   "list ACCOUNT",
		Short: "List grants in the order in which they are used",
		Args:  exactArgs("ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			answer, err := client.ListGrants(cmd.Context(), connect.NewRequest(&budgetv1.ListGrantsRequest{Account: args[0]}))
			if err != nil {
				return to.explain(err)
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer.Msg)
			}
			t := newTable(s.out, "NAME", "LIMIT", "SCOPE", "AMOUNT", "LEFT", "FROM", "UNTIL", "PRIORITY", "REASON")
			for _, g := range answer.Msg.Grants {
				t.AppendRow([]any{g.Name, g.Limit, g.Scope, showAmount(g.Meter, g.Amount), showLeft(g), showInstant(g.From), showInstant(g.Until), g.Priority, g.Reason})
			}
			t.Render()
			return nil
		},
	}
	to.addFlags(cmd)
	return cmd
}

func newGrantRemoveCommand(s streams) *cobra.Command {
	var to connection
	cmd := &cobra.Command{
		Use:   "remove ACCOUNT NAME",
		Short: "Take a grant away: the quota allows so much less at once",
		Args:  exactArgs("ACCOUNT", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			answer, err := client.RemoveGrant(cmd.Context(), connect.NewRequest(&budgetv1.RemoveGrantRequest{Account: args[0], Name: args[1]}))
			if err != nil {
				return to.explain(err)
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer.Msg)
			}
			fmt.Fprintf(s.out, "grant %s of account %s is gone (policy version %d)\n", args[1], args[0], answer.Msg.PolicyVersion)
			return nil
		},
	}
	to.addFlags(cmd)
	return cmd
}

func showLeft(g *budgetv1.Grant) string {
	if g.Left == nil {
		return "-"
	}
	return showAmount(g.Meter, g.GetLeft())
}
