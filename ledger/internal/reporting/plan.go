// Package reporting turns the query of a report into what an engine must read,
// and keeps the place where a page ended. The engines share it, so that they
// can't disagree about what a report covers.
package reporting

import (
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

// Plan is what must be read for a page of a report.
type Plan struct {
	ledger.ReportQuery
	Start time.Time // of the whole span: that of the rows of GrainTotal
	Whole Span      // all that is read
	Days  Span      // what is read by the day; empty if From is not before To
	Hours []Span    // what is read by the hour
	After *Position // rows up to this one are not wanted; nil for none
}

// NewPlan checks the query and returns its plan. The error wraps
// ledger.ErrInvalid.
func NewPlan(query ledger.ReportQuery) (*Plan, error) {
	if err := query.Validate(); err != nil {
		return nil, err
	}
	p := &Plan{ReportQuery: query}
	p.Whole.From, p.Whole.To = query.Span()
	p.Start = p.Whole.From
	var err error
	if p.After, err = p.parse(query.After); err != nil {
		return nil, err
	}
	if p.After != nil && query.Grain != ledger.GrainTotal {
		p.Whole.From = p.After.Start // pages before have shown what is earlier
	}
	switch query.Grain {
	case ledger.GrainHour:
		p.Hours = []Span{p.Whole}
	case ledger.GrainTotal:
		p.splitDays()
	default:
		p.Days = p.Whole
	}
	return p, nil
}

// splitDays reads whole days by the day and the rest by the hour.
func (p *Plan) splitDays() {
	first := p.Whole.From.Truncate(day)
	if first.Before(p.Whole.From) {
		first = first.Add(day)
	}
	p.Days = Span{From: first, To: p.Whole.To.Truncate(day)}
	if p.Days.empty() {
		p.Days = Span{}
		p.Hours = []Span{p.Whole}
		return
	}
	for _, edge := range []Span{{p.Whole.From, p.Days.From}, {p.Days.To, p.Whole.To}} {
		if !edge.empty() {
			p.Hours = append(p.Hours, edge)
		}
	}
}

// ReadsDays says whether anything is read by the day.
func (p *Plan) ReadsDays() bool { return !p.Days.empty() }

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
