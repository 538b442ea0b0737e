package reporting_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/internal/reporting"
)

func at(text string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		panic(err)
	}
	return t
}

func TestPartsCoverTheSpanOnce(t *testing.T) {
	for _, c := range []struct {
		grain    ledger.Grain
		from, to string
		want     string
	}{
		{ledger.GrainHour, "2026-11-15 10:20:00", "2026-11-15 10:20:01", "hours 15T10 15T11"},
		{ledger.GrainHour, "2026-11-15 10:20:00", "2026-11-15 15:00:01", "hours 15T10 15T11, hours 15T11 15T13, hours 15T13 15T16"},
		{ledger.GrainDay, "2026-11-15 10:20:00", "2026-11-17 00:00:01", "days 15T00 16T00, days 16T00 18T00"},
		{ledger.GrainDay, "2026-11-15 10:20:00", "2026-11-17 00:00:00", "days 15T00 16T00, days 16T00 17T00"},
		{ledger.GrainMonth, "2026-11-15 10:20:00", "2026-11-16 00:00:00", "days 01T00 01T00"},
		{ledger.GrainTotal, "2026-11-15 00:00:00", "2026-11-17 00:00:00", "days 15T00 17T00"},
		{ledger.GrainTotal, "2026-11-15 10:20:00", "2026-11-17 01:00:00", "days 16T00 17T00 hours 15T10 16T00 hours 17T00 17T01"},
		{ledger.GrainTotal, "2026-11-15 10:20:00", "2026-11-16 01:00:00", "hours 15T10 16T01"},
		{ledger.GrainTotal, "2026-11-15 10:20:00", "2026-11-15 10:20:01", "hours 15T10 15T11"},
	} {
		p, err := reporting.NewPlan(ledger.ReportQuery{Grain: c.grain, From: at(c.from), To: at(c.to), Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		var parts []string
		for part := range p.Parts() {
			const layout = "02T15"
			if one := c.grain == ledger.GrainTotal || len(parts) == 0; one != !part.Start.IsZero() {
				t.Errorf("%s from %s to %s: part %d starts at %s", c.grain, c.from, c.to, len(parts), part.Start)
			}
			var got []string
			if part.ReadsDays() {
				got = append(got, "days "+part.Days.From.Format(layout)+" "+part.Days.To.Format(layout))
			}
			for _, hours := range part.Hours {
				got = append(got, "hours "+hours.From.Format(layout)+" "+hours.To.Format(layout))
			}
			parts = append(parts, strings.Join(got, " "))
		}
		if got := strings.Join(parts, ", "); got != c.want {
			t.Errorf("%s from %s to %s reads %q, want %q", c.grain, c.from, c.to, got, c.want)
		}
	}
}

// TestPartsOfTheWidestSpan ends, and soon.
func TestPartsOfTheWidestSpan(t *testing.T) {
	p, err := reporting.NewPlan(ledger.ReportQuery{Grain: ledger.GrainDay, From: ledger.MinInstant, To: ledger.EndInstant, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	parts, at := 0, ledger.MinInstant
	for part := range p.Parts() {
		if !part.Whole.From.Equal(at) {
			t.Fatalf("a part from %s, want from %s", part.Whole.From, at)
		}
		parts, at = parts+1, part.Whole.To
	}
	if parts != 22 || !at.Equal(ledger.EndInstant) {
		t.Errorf("%d parts to %s, want 22 (2^22 days are more) to %s", parts, at, ledger.EndInstant)
	}
}

func query() ledger.ReportQuery {
	return ledger.ReportQuery{
		Grain: ledger.GrainDay, From: at("2026-11-01 00:00:00"), To: at("2026-12-01 00:00:00"), GroupBy: []string{"model", "route"}, Limit: 1,
	}
}

func next(t testing.TB, q ledger.ReportQuery) (ledger.ReportRow, string) {
	p, err := reporting.NewPlan(q)
	if err != nil {
		t.Fatal(err)
	}
	row := ledger.ReportRow{Start: at("2026-11-15 00:00:00"), Group: []string{"", ""}, Absent: []bool{true, false}, Meter: "tokens"}
	page := p.Page([]ledger.ReportRow{row, {}})
	if len(page.Rows) != 1 || page.Next == "" {
		t.Fatalf("a page of one row of two: %+v", page)
	}
	return row, page.Next
}

func TestPosition(t *testing.T) {
	row, after := next(t, query())
	q := query()
	q.After, q.Limit = after, 7
	q.To = q.To.Add(-time.Minute) // the same days
	p, err := reporting.NewPlan(q)
	if err != nil {
		t.Fatal(err)
	}
	want := &reporting.Position{Start: row.Start, Group: []string{"", "="}, Meter: "tokens"}
	if diff := cmp.Diff(want, p.After); diff != "" {
		t.Errorf("position (-want +got):\n%s", diff)
	}
	for part := range p.Parts() {
		if part.Days.From != row.Start {
			t.Errorf("reads from %s again, want from %s", part.Days.From, row.Start)
		}
		break
	}
	for what, change := range map[string]func(*ledger.ReportQuery){
		"account": func(q *ledger.ReportQuery) { q.Account = "acme" },
		"span":    func(q *ledger.ReportQuery) { q.To = q.To.AddDate(0, 0, 1) },
		"grain":   func(q *ledger.ReportQuery) { q.Grain = ledger.GrainHour },
		"group":   func(q *ledger.ReportQuery) { q.GroupBy = []string{"route", "model"} },
		"labels":  func(q *ledger.ReportQuery) { q.Labels = map[string]string{"model": "x"} },
		"meters":  func(q *ledger.ReportQuery) { q.Meters = append(q.Meters, "tokens") },
	} {
		q := query()
		q.After = after
		change(&q)
		if _, err := reporting.NewPlan(q); !errors.Is(err, ledger.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "after: is of another query") {
			t.Errorf("another %s: error %v", what, err)
		}
	}
}

func FuzzPosition(f *testing.F) {
	_, after := next(f, query())
	f.Add(after)
	f.Add(after[:len(after)-2])
	f.Add("AQfqDA")
	f.Fuzz(func(t *testing.T, text string) {
		q := query()
		q.After = text
		p, err := reporting.NewPlan(q)
		if err != nil {
			if !errors.Is(err, ledger.ErrInvalid) {
				t.Fatalf("error %v, want ErrInvalid", err)
			}
			return
		}
		if text == "" {
			return
		}
		row := ledger.ReportRow{Start: p.After.Start, Meter: p.After.Meter}
		reporting.SetGroup(&row, p.After.Group)
		if again := p.Page([]ledger.ReportRow{row, {}}).Next; again != text {
			t.Fatalf("%q came back as %q", text, again)
		}
	})
}
