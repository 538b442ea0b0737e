package main

import (
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
)

func newQuotaCommand(s streams) *cobra.Command {
	var (
		to      connection
		account string
		labels  []string
	)
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Show an account's limits and what is left of them",
		Long: `Shows every limit that calls of an account with these labels may meet: used, held
by open reservations, left, and when it is whole again. A limit that matches on a
label which is not given is among them. PER is what refills a limit of rate, or
the period of a quota.`,
		Example: `  budgetd quota --account demo
  budgetd quota --account acme --label model=gpt-4o-mini --label user=7 --json`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			request := &budgetv1.GetQuotaRequest{Account: account}
			var err error
			if request.Labels, err = parseLabels(cmd, labels); err != nil {
				return err
			}
			client, err := to.open(cmd)
			if err != nil {
				return err
			}
			answer, err := client.Service().GetQuota(cmd.Context(), connect.NewRequest(request))
			if err != nil {
				return to.explain(err)
			}
			if wantsJSON(cmd, to.json, s.out) {
				return printJSON(s.out, answer.Msg)
			}
			showQuota(s, answer.Msg)
			return nil
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVar(&account, "account", "", "whose; may be left out when the key has one account")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "a label, `name=value`, that selects scoped counters; repeat for more")
	return cmd
}

func showQuota(s streams, m *budgetv1.GetQuotaResponse) {
	fmt.Fprintf(s.out, "account %s, plan %s\n", m.Account, m.Plan)
	if m.Degraded {
		fmt.Fprintln(s.err, "degraded: the broker's store does not answer; what is left is not known")
	}
	if m.LedgerAway {
		fmt.Fprintln(s.err, "the broker's ledger does not answer; quotas are shown as far as its store knows them")
	}
	t := newTable(s.out, "LIMIT", "SCOPE", "METER", "OF", "PER", "USED", "HELD", "LEFT", "RESETS", "MODE")
	for _, limit := range m.Limits {
		t.AppendRow([]any{
			limit.Limit, limit.Scope, limit.Meter, showAmount(limit.Meter, limit.LimitAmount), showSpan(limit),
			showAmount(limit.Meter, limit.Used), showAmount(limit.Meter, limit.Held), showAmount(limit.Meter, limit.Remaining), showInstant(limit.ResetsAt), showModes(limit),
		})
	}
	t.Render()
	for _, limit := range m.Limits {
		showFair(s, limit)
		for _, k := range limit.KeepFor {
			fmt.Fprintf(s.out, "%s keeps %d%% for %s: calls below leave %s\n", limit.Limit, k.Percent, k.Priority, showAmount(limit.Meter, k.Kept))
		}
		showRefusals(s, limit)
		showMaxWait(s, limit)
	}
}

// showMaxWait prints how far ahead calls may be booked that meet the limit.
func showMaxWait(s streams, limit *budgetv1.LimitStatus) {
	switch wait := limit.MaxWait; {
	case wait == nil:
	case wait.AsDuration() == 0:
		fmt.Fprintf(s.out, "%s lets no call wait: those that it meets start at once or are refused\n", limit.Limit)
	default:
		fmt.Fprintf(s.out, "%s lets calls wait %s at most for their start\n", limit.Limit, quota.FormatSpan(wait.AsDuration()))
	}
}

// showRefusals prints what refusals by a limit lead to.
func showRefusals(s streams, limit *budgetv1.LimitStatus) {
	name := limit.Limit
	if limit.Scope != "" {
		name += " (" + limit.Scope + ")"
	}
	if limit.CountRefusals {
		fmt.Fprintf(s.out, "%s counts what it refuses\n", name)
	}
	if b := limit.Ban; b != nil {
		span := func(ms int64) string { return quota.FormatSpan(time.Duration(ms) * time.Millisecond) }
		fmt.Fprintf(s.out, "%s bans for %s after %d refusals within %s\n", name, span(b.ForMs), b.Refusals, span(b.WithinMs))
	}
	if limit.BannedUntil != nil {
		fmt.Fprintf(s.out, "%s is banned until %s\n", name, showInstant(limit.BannedUntil))
	}
}

// showModes prints the mode in force, and what the policy states where that is another
// thing.
func showModes(limit *budgetv1.LimitStatus) string {
	mode := showMode(limit.Mode)
	if p := limit.Pinned; p != nil {
		mode += " (pinned; the policy states " + showMode(p.Stated)
		if p.Until != nil {
			mode += " from " + showInstant(p.Until)
		}
		mode += ")"
	}
	return mode
}

// showMode prints a mode as policies have it.
func showMode(mode budgetv1.LimitMode) string {
	return strings.ToLower(strings.TrimPrefix(mode.String(), "LIMIT_MODE_"))
}

// showSpan prints over what a limit counts: "10000/min", "month".
func showSpan(limit *budgetv1.LimitStatus) string {
	switch {
	case limit.RefillAmount > 0:
		return quota.FormatRate(quota.Meter(limit.Meter), quota.Rate{
			Amount: quota.Amount(limit.RefillAmount), Every: time.Duration(limit.RefillEveryMs) * time.Millisecond,
		})
	case limit.Kind == budgetv1.LimitKind_LIMIT_KIND_QUOTA:
		return limit.Period
	case limit.Kind == budgetv1.LimitKind_LIMIT_KIND_SLOTS:
		return "at once"
	}
	return "-"
}

// showFair tells how the accounts of a pool share a limit.
func showFair(s streams, limit *budgetv1.LimitStatus) {
	switch fair := limit.Fair; {
	case fair == nil:
	case fair.AheadUntil != nil:
		fmt.Fprintf(s.out, "%s is shared, %d accounts use it: this one is ahead of its share until %s\n", limit.Limit, fair.Accounts, showInstant(fair.AheadUntil))
	default:
		fmt.Fprintf(s.out, "%s is shared, %d accounts use it: this one has its share\n", limit.Limit, fair.Accounts)
	}
}
