package ledger

import (
	"fmt"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// MaxHourlySpan is the longest span of a report by the hour.
const MaxHourlySpan = 400 * 24 * time.Hour

// Span returns the span that the report covers: From taken down, and To taken
// up, to whole hours, days or months in UTC.
func (q ReportQuery) Span() (from, to time.Time) {
	from, to = q.Grain.start(q.From), q.Grain.start(q.To)
	if to.Before(q.To) {
		to = q.Grain.next(to)
	}
	return from, to
}

// start returns the first instant of the grain's unit that holds an instant.
func (g Grain) start(at time.Time) time.Time {
	at = at.UTC()
	switch g {
	case GrainMonth:
		return MonthOf(at)
	case GrainDay:
		return at.Truncate(24 * time.Hour)
	}
	return at.Truncate(time.Hour)
}

func (g Grain) next(start time.Time) time.Time {
	switch g {
	case GrainMonth:
		return start.AddDate(0, 1, 0)
	case GrainDay:
		return start.AddDate(0, 0, 1)
	}
	return start.Add(time.Hour)
}

// Validate returns an error that wraps [ErrInvalid] and names the field and its
// bound unless the query is one that Report answers:
//
//   - account: at most MaxTextBytes bytes
//   - from, to: from MinInstant to EndInstant, from before to; at most
//     MaxHourlySpan apart with GrainHour
//   - grain: one of the four
//   - group_by: at most MaxGroupBy names, each once, 1 to MaxTextBytes bytes
//   - labels: as in Closing.Validate
//   - meters: at most quota.MaxMeters, 1 to MaxTextBytes bytes
//   - limit: 1 to MaxPage
//
// Whether After is right, Report finds out.
func (q ReportQuery) Validate() error { return invalid(q.problem()) }

func (q ReportQuery) problem() string {
	if p := textProblem("account", q.Account); p != "" {
		return p
	}
	switch q.Grain {
	case GrainHour, GrainDay, GrainMonth, GrainTotal:
	default:
		return fmt.Sprintf("grain: %s is none of %q, %q, %q and %q", quoteShort(string(q.Grain)), GrainHour, GrainDay, GrainMonth, GrainTotal)
	}
	if p := q.spanProblem(); p != "" {
		return p
	}
	if len(q.GroupBy) > MaxGroupBy {
		return fmt.Sprintf("group_by: %d labels are stated, at most %d are accepted", len(q.GroupBy), MaxGroupBy)
	}
	for i, name := range q.GroupBy {
		if p := requiredText(fmt.Sprintf("group_by[%d]", i), name); p != "" {
			return p
		}
		for j := range i {
			if q.GroupBy[j] == name {
				return fmt.Sprintf("group_by[%d]: %s is stated twice", i, quoteShort(name))
			}
		}
	}
	if p := labelProblem(q.Labels); p != "" {
		return p
	}
	if len(q.Meters) > quota.MaxMeters {
		return fmt.Sprintf("meters: %d are stated, at most %d are accepted", len(q.Meters), quota.MaxMeters)
	}
	for i, meter := range q.Meters {
		if p := requiredText(fmt.Sprintf("meters[%d]", i), string(meter)); p != "" {
			return p
		}
	}
	return pageProblem(q.Limit)
}

func (q ReportQuery) spanProblem() string {
	if p := spanProblem(q.From, q.To); p != "" {
		return p
	}
	if from, to := q.Span(); q.Grain == GrainHour && to.Sub(from) > MaxHourlySpan {
		return fmt.Sprintf("to: the span has %d hours, a report by the hour covers at most %d; ask by the day, or in parts",
			int64(to.Sub(from)/time.Hour), int64(MaxHourlySpan/time.Hour))
	}
	return ""
}
