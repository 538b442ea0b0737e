package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/backtest"
	"github.com/budgetd/budgetd/quota"
)

// Rows of a table for people. The JSON has all of them.
const maxGroupRows = 15

// showBacktest prints a report for people: the plans beside each other.
func showBacktest(out io.Writer, r *backtest.Report) {
	fmt.Fprintf(out, "%s requests of %s, %s to %s\n", count(r.Offered.Requests), strings.Join(r.Sources, ", "), showTime(r.First), showTime(r.Last))
	if r.Bad > 0 {
		fmt.Fprintf(out, "left out: %s\n", count(r.Bad))
		for _, line := range r.Skipped {
			fmt.Fprintf(out, "  %s\n", line)
		}
	}
	for _, line := range r.Assumed {
		fmt.Fprintf(out, "assumed: %s\n", line)
	}
	for _, line := range r.Notes {
		fmt.Fprintf(out, "note: %s\n", line)
	}
	fmt.Fprintln(out)
	if r.Suggestion != nil {
		showSuggestion(out, r)
	}
	t := newTable(out, "POLICY", "ADMITTED", "REFUSED", "SHARE", "TOKENS SAVED", "MONEY SAVED", "FIRST REFUSED", "LAST REFUSED")
	t.SetColumnConfigs(rightAligned(2, 3, 4, 5, 6))
	for _, p := range r.Plans {
		first, last := "-", "-"
		if p.FirstRefused != nil {
			first, last = showTime(*p.FirstRefused), showTime(*p.LastRefused)
		}
		t.AppendRow([]any{p.Plan, count(p.Admitted.Requests), count(p.Refused.Requests), showShare(p.Refused, r.Offered), count(p.Refused.Tokens), showSaved(p.Refused, p), first, last})
	}
	t.Render()
	for _, p := range r.Plans {
		if p.Delayed > 0 {
			fmt.Fprintf(out, "%s lets %s of the admitted wait, up to %s\n", p.Plan, count(p.Delayed), p.LongestDelay)
		}
	}
	showRefusing(out, r)
	for i, by := range r.Plans[0].Groups {
		showGroups(out, r, i, by.By)
	}
	showTimeline(out, r)
}

func count(n int64) string { return showAmount(string(quota.MeterTokens), n) }

// showShare prints what part of the requests a sum has.
func showShare(part, of backtest.Sum) string {
	if of.Requests == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f%%", 100*float64(part.Requests)/float64(of.Requests))
}

func showSaved(refused backtest.Sum, p backtest.Outcome) string {
	if p.Priced == 0 {
		return "-"
	}
	return refused.Cost.String()
}

// showSuggestion prints the smallest limits that were found.
func showSuggestion(out io.Writer, r *backtest.Report) {
	s := r.Suggestion
	bound := "nothing"
	if s.Share > 0 {
		bound = fmt.Sprintf("under %g%%", float64(s.Share)/10_000)
	}
	fmt.Fprintf(out, "the smallest limits that refuse %s, found in %d passes\n", bound, s.Passes)
	t := newTable(out, "LIMIT", "OF", "NOW", "ALONE", "REFUSED", "ONE STEP LESS", "REFUSED", "TOGETHER")
	t.SetColumnConfigs(rightAligned(3, 4, 5, 6, 7, 8))
	for i := range s.Limits {
		l := &s.Limits[i]
		of := "plan " + l.Plan
		switch {
		case l.Account != "":
			of = "account " + l.Account
		case l.Pool != "":
			of = "pool"
		}
		row := []any{l.Limit, of, showRule(l, l.Stated), "-", "-", "-", "-", showRule(l, l.Together)}
		if l.Alone > 0 {
			row[3], row[4] = showRule(l, l.Alone), showShare(l.Refused, r.Offered)
		}
		if l.Less > 0 {
			row[5], row[6] = showRule(l, l.Less), showShare(l.LessSum, r.Offered)
		}
		t.AppendRow(row)
	}
	t.Render()
	fmt.Fprintf(out, "all together refuse %s\n", showShare(s.Together, r.Offered))
	for i := range s.Limits {
		if l := &s.Limits[i]; l.Note != "" {
			fmt.Fprintf(out, "limit %s: %s\n", l.Limit, l.Note)
		}
	}
	for _, note := range s.Notes {
		fmt.Fprintf(out, "note: %s\n", note)
	}
	fmt.Fprintln(out)
}

// showRule prints a limit of that amount as a policy file has it.
func showRule(l *backtest.SuggestedLimit, amount quota.Amount) string {
	limit := l.With(amount)
	switch {
	case limit.Kind.HasRate():
		text := quota.FormatRate(limit.Meter, limit.Rate)
		if limit.Burst != 0 {
			text += ", " + limit.BurstWord() + " " + quota.FormatAmount(limit.Meter, limit.Burst)
		}
		return text
	case limit.Kind == quota.KindQuota:
		return quota.FormatAmount(limit.Meter, limit.Max) + " a " + string(limit.Period)
	}
	return quota.FormatAmount(limit.Meter, limit.Max)
}

// showRefusing prints which limits refused, a block for each plan.
func showRefusing(out io.Writer, r *backtest.Report) {
	for _, p := range r.Plans {
		if len(p.Limits) == 0 {
			continue
		}
		fmt.Fprintf(out, "\nrefused by%s\n", ofPlan(r, p))
		t := newTable(out, "LIMIT", "REASON", "REFUSED", "SHARE", "TOKENS", "MONEY")
		t.SetColumnConfigs(rightAligned(3, 4, 5, 6))
		for _, l := range p.Limits {
			name := l.Limit
			if l.Pool != "" {
				name = "pool " + l.Pool
			}
			t.AppendRow([]any{name, strings.ReplaceAll(l.Reason, "_", " "), count(l.Refused.Requests), showShare(l.Refused, r.Offered), count(l.Refused.Tokens), showSaved(l.Refused, p)})
		}
		t.Render()
	}
}

// ofPlan names a plan where there are two.
func ofPlan(r *backtest.Report, p backtest.Outcome) string {
	if len(r.Plans) == 1 {
		return ""
	}
	return ", under " + p.Plan
}

// showGroups prints one grouping of every plan, a block for each.
func showGroups(out io.Writer, r *backtest.Report, which int, by string) {
	for _, p := range r.Plans {
		groups := p.Groups[which].Groups
		fmt.Fprintf(out, "\nby %s%s\n", by, ofPlan(r, p))
		t := newTable(out, strings.ToUpper(by), "REQUESTS", "REFUSED", "SHARE", "TOKENS SAVED", "MONEY SAVED")
		t.SetColumnConfigs(rightAligned(2, 3, 4, 5, 6))
		for i, g := range groups {
			if i == maxGroupRows {
				break
			}
			name := g.Name
			if name == "" {
				name = "(none)"
			}
			t.AppendRow([]any{name, count(g.Offered.Requests), count(g.Refused.Requests), showShare(g.Refused, g.Offered), count(g.Refused.Tokens), showSaved(g.Refused, p)})
		}
		t.Render()
		if left := len(groups) - maxGroupRows; left > 0 {
			fmt.Fprintf(out, "and %s more, which --json shows\n", count(int64(left)))
		}
	}
}

// showTimeline prints what was refused when, the plans beside each other. Spans
// without calls are left out.
func showTimeline(out io.Writer, r *backtest.Report) {
	fmt.Fprintf(out, "\nover time, %s a row\n", r.Plans[0].Width)
	header := []any{"FROM", "REQUESTS"}
	for _, p := range r.Plans {
		name := "REFUSED"
		if len(r.Plans) > 1 {
			name += " " + p.Plan
		}
		header = append(header, name, "SHARE")
	}
	t := newTable(out, header...)
	columns := []int{2}
	for i := range r.Plans {
		columns = append(columns, 3+2*i, 4+2*i)
	}
	t.SetColumnConfigs(rightAligned(columns...))
	for i, slice := range r.Plans[0].Timeline {
		if slice.Offered.Requests == 0 {
			continue
		}
		row := []any{showTime(slice.From), count(slice.Offered.Requests)}
		for _, p := range r.Plans {
			row = append(row, count(p.Timeline[i].Refused.Requests), showShare(p.Timeline[i].Refused, slice.Offered))
		}
		t.AppendRow(row)
	}
	t.Render()
}
