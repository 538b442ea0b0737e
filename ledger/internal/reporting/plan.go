// Package reporting turns the query of a report into what an engine must read,
// and keeps the place where a page ended. The engines share it, so that they
// can't disagree about what a report covers.
package reporting

import (
	"iter"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

const day = 24 * time.Hour

// Account is the name in GroupBy that stands for the account.
const Account = "account"

// Present goes before the value of a label that is there, in the columns by
// which engines group and sort. A label that is absent is the empty text, and
// so comes first.
const Present = "="

// Span is a span of time, To exclusive.
type Span struct{ From, To time.Time }

func (s Span) empty() bool { return !s.From.Before(s.To) }

// Plan is how a page of a report is read.
type Plan struct {
	ledger.ReportQuery
	Start time.Time // of the whole span: that of the rows of GrainTotal
	After *Position // rows up to this one are not wanted; nil for none
	span  Span      // what the pages before have not shown in full
}

// Part is what an engine reads at once. All rows of a part come before those of
// the next.
type Part struct {
	Whole Span      // all of it
	Start time.Time // of all its rows; zero if they differ
	Days  Span      // what is read by the day; empty if From is not before To
	Hours []Span    // what is read by the hour
}

// NewPlan checks the query and returns its plan. The error wraps
// ledger.ErrInvalid.
func NewPlan(query ledger.ReportQuery) (*Plan, error) {
	if err := query.Validate(); err != nil {
		return nil, err
	}
	p := &Plan{ReportQuery: query}
	p.span.From, p.span.To = query.Span()
	p.Start = p.span.From
	var err error
	if p.After, err = p.parse(query.After); err != nil {
		return nil, err
	}
	if p.After != nil && query.Grain != ledger.GrainTotal {
		p.span.From = p.After.Start
	}
	return p, nil
}

// Parts returns the parts of the span in order. A page may need few of them:
// the first is one hour, day or month, and each has twice as many as the one
// before, so that a page reads little more than it shows.
func (p *Plan) Parts() iter.Seq[Part] {
	return func(yield func(Part) bool) {
		if p.Grain == ledger.GrainTotal {
			part := split(p.span)
			part.Start = p.Start
			yield(part)
			return
		}
		from := p.span.From
		for units := 1; from.Before(p.span.To); units *= 2 {
			whole := Span{From: from, To: p.later(from, units)}
			if whole.To.After(p.span.To) {
				whole.To = p.span.To
			}
			part := Part{Whole: whole, Days: whole}
			if units == 1 {
				part.Start = whole.From
			}
			if p.Grain == ledger.GrainHour {
				part.Days, part.Hours = Span{}, []Span{whole}
			}
			if !yield(part) {
				return
			}
			from = whole.To
		}
	}
}

func (p *Plan) later(at time.Time, units int) time.Time {
	switch p.Grain {
	case ledger.GrainMonth:
		return at.AddDate(0, units, 0)
	case ledger.GrainDay:
		return at.AddDate(0, 0, units)
	}
	return at.Add(time.Duration(units) * time.Hour)
}

// split reads whole days by the day and the rest by the hour.
func split(whole Span) Part {
	first := whole.From.Truncate(day)
	if first.Before(whole.From) {
		first = first.Add(day)
	}
	days := Span{From: first, To: whole.To.Truncate(day)}
	if days.empty() {
		return Part{Whole: whole, Hours: []Span{whole}}
	}
	part := Part{Whole: whole, Days: days}
	for _, edge := range []Span{{whole.From, days.From}, {days.To, whole.To}} {
		if !edge.empty() {
			part.Hours = append(part.Hours, edge)
		}
	}
	return part
}

// ReadsDays says whether anything is read by the day.
func (p Part) ReadsDays() bool { return !p.Days.empty() }

// Missing returns how many rows must still be read, after so many, to make the
// page and to know whether there is another.
func (p *Plan) Missing(read int) int { return p.Limit + 1 - read }

// Page makes a page of the rows that were read, of which there is one more than
// Limit if there is another page.
func (p *Plan) Page(rows []ledger.ReportRow) ledger.Report {
	if len(rows) <= p.Limit {
		return ledger.Report{Rows: rows}
	}
	rows = rows[:p.Limit]
	return ledger.Report{Rows: rows, Next: p.next(&rows[len(rows)-1])}
}

// SetGroup sets the group of a row from columns with Present in front.
func SetGroup(row *ledger.ReportRow, columns []string) {
	row.Group = make([]string, len(columns))
	row.Absent = make([]bool, len(columns))
	for i, column := range columns {
		if column == "" {
			row.Absent[i] = true
		} else {
			row.Group[i] = column[len(Present):]
		}
	}
}
