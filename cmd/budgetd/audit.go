package main

import (
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

func newAuditCommand(s streams) *cobra.Command {
	var (
		to      connection
		account string
		repair  bool
		all     bool
	)
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Compare the ledger with the counters, and repair what is safe",
		Long: `Compares, for each account, limit and period: the sum of the ledger's entries,
the ledger's usage row, and what the engine counts as used, held and unposted.
A difference counts when it is still there at a second look.

--repair sets the engine's counters to what the ledger and the open reservations
say. The ledger itself is never changed: a row that is not the sum of its
entries is left to people.

Exit code 0 when everything was compared and there is no gap, 1 when there is
one, and 75 when there is none in what could be compared: closings wait for the
ledger, or an account could not be compared in full.`,
		Example: `  budgetd audit
  budgetd audit --account acme --all
  budgetd audit --repair`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := to.openAdmin(cmd)
			if err != nil {
				return err
			}
			answer, err := client.Audit(cmd.Context(), connect.NewRequest(&budgetv1.AuditRequest{Account: account, Repair: repair, All: all}))
			if err != nil {
				return to.explain(err)
			}
			m := answer.Msg
			if wantsJSON(cmd, to.json, s.out) {
				err = printWholeJSON(s.out, m)
			} else {
				showAudit(s, m)
			}
			switch {
			case err != nil:
				return err
			case m.Gaps > 0:
				return &exit{code: exitFailed}
			case m.Waiting > 0 || m.Unsummed > 0 || m.Partial > 0 || m.Failed > 0:
				return &exit{code: exitTryLater}
			}
			return nil
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVar(&account, "account", "", "only this account; else every one")
	cmd.Flags().BoolVar(&repair, "repair", false, "set the engine's counters right where that is safe")
	cmd.Flags().BoolVar(&all, "all", false, "list every counter, not only those with a gap")
	return cmd
}

func showAudit(s streams, m *budgetv1.AuditResponse) {
	if len(m.Counters) > 0 {
		t := newTable(s.out, "ACCOUNT", "LIMIT", "SCOPE", "PERIOD", "METER", "ENTRIES", "POSTED", "USED", "HELD", "UNPOSTED", "GAP")
		for _, c := range m.Counters {
			used, held, unposted := "-", "-", "-"
			if e := c.Engine; e != nil {
				used, held, unposted = showAmount(c.Meter, e.Used), showAmount(c.Meter, e.Held), showAmount(c.Meter, e.Unposted)
			}
			limit := c.Limit
			if limit == "" {
				limit = "(total)"
				if c.LimitId != "" {
					limit = c.LimitId
				}
			}
			gap := c.Gap
			switch {
			case c.Repaired && gap != "":
				gap = "repaired in part; " + gap
			case c.Repaired:
				gap = "repaired"
			case gap == "":
				gap = "-"
			}
			t.AppendRow([]any{c.Account, limit, c.Scope, c.Period, c.Meter, showAmount(c.Meter, c.Entries), showAmount(c.Meter, c.Posted), used, held, unposted, gap})
		}
		t.Render()
	}
	if m.MoreCounters > 0 {
		fmt.Fprintf(s.out, "and %d more counters; name an account\n", m.MoreCounters)
	}
	if m.Unsummed > 0 {
		fmt.Fprintf(s.err, "%d accounts have too many open reservations to add them up\n", m.Unsummed)
	}
	if m.Partial > 0 {
		fmt.Fprintf(s.err, "%d accounts have too many usage rows to compare all of them with the engine\n", m.Partial)
	}
	if m.Failed > 0 {
		fmt.Fprintf(s.err, "%d accounts can't be read: %s\n", m.Failed, strings.Join(m.FailedAccounts, ", "))
	}
	fmt.Fprintf(s.out, "%d counters of %d accounts compared; %d gaps, %d repaired, %d closings wait for the ledger\n",
		m.Checked, m.Accounts, m.Gaps, m.Repaired, m.Waiting)
	if m.Gaps > 0 {
		fmt.Fprintln(s.err, `what --repair leaves is for people: see "Audits" in docs/operations.md`)
	}
}
