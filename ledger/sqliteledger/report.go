package sqliteledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/internal/reporting"
	"github.com/budgetd/budgetd/quota"
)

// Report implements [ledger.Reader].
func (l *Ledger) Report(ctx context.Context, query ledger.ReportQuery) (ledger.Report, error) {
	plan, err := reporting.NewPlan(query)
	if err != nil {
		return ledger.Report{}, err
	}
	var rows []ledger.ReportRow
	err = l.inRead(ctx, "report", func(tx *sql.Tx) error {
		for part := range plan.Parts() {
			more, err := readReport(ctx, tx, plan, part, plan.Missing(len(rows)))
			if err != nil {
				return err
			}
			if rows = append(rows, more...); plan.Missing(len(rows)) == 0 {
				break
			}
		}
		return nil
	})
	if err != nil {
		return ledger.Report{}, err
	}
	return plan.Page(rows), nil
}

func readReport(ctx context.Context, tx *sql.Tx, plan *reporting.Plan, part reporting.Part, limit int) (report []ledger.ReportRow, err error) {
	text, arguments := reportStatement(plan, part, limit)
	rows, err := tx.QueryContext(ctx, text, arguments...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var (
			row        ledger.ReportRow
			start      int64
			group      = make([]string, len(plan.GroupBy))
			used, held halves
		)
		into := []any{&start}
		for i := range group {
			into = append(into, &group[i])
		}
		into = append(into, &row.Meter, &used.high, &used.low, &held.high, &held.low, &row.Calls)
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		row.Start = time.Unix(start, 0).UTC()
		reporting.SetGroup(&row, group)
		if row.Used, err = used.sum(); err != nil {
			return nil, err
		}
		if row.Held, err = held.sum(); err != nil {
			return nil, err
		}
		report = append(report, row)
	}
	return report, rows.Err()
}

// halves are the sums of the upper and the lower 32 bits of numbers. SQLite
// adds up integers of 64 bits, and a sum that does not fit ends the statement.
// These fit for two thousand million rows.
type halves struct{ high, low int64 }

func (h halves) sum() (quota.Amount, error) {
	high := h.high + h.low>>32
	if high < math.MinInt32 || high > math.MaxInt32 {
		return 0, fmt.Errorf("a sum leaves 64 bits, ask for a shorter span or for finer groups: %w", quota.ErrOverflow)
	}
	return quota.Amount(high<<32 | h.low&math.MaxUint32), nil
}

// reportBuilder writes the statement of a report.
type reportBuilder struct {
	plan      *reporting.Plan
	part      reporting.Part
	arguments []any
}

// argument returns the placeholder of an argument.
func (b *reportBuilder) argument(value any) string {
	b.arguments = append(b.arguments, value)
	return "?" + strconv.Itoa(len(b.arguments))
}

// reportStatement returns a statement that sums up what lies in the part by the
// labels that are asked for, and takes at most limit rows of it.
func reportStatement(plan *reporting.Plan, part reporting.Part, limit int) (string, []any) {
	b := &reportBuilder{plan: plan, part: part}
	filter := b.filter()
	var columns, joins strings.Builder
	order := []string{"start"}
	for i, name := range plan.GroupBy {
		column := "g" + strconv.Itoa(i)
		order = append(order, column)
		if name == reporting.Account {
			fmt.Fprintf(&columns, ", '%s' || s.account AS %s", reporting.Present, column)
			continue
		}
		fmt.Fprintf(&columns, ", coalesce('%[1]s' || l%[2]d.value, '') AS %[3]s", reporting.Present, i, column)
		fmt.Fprintf(&joins, " LEFT JOIN label_values l%[1]d ON l%[1]d.labels = s.labels AND l%[1]d.name = %[2]s", i, b.argument(name))
	}
	order = append(order, "meter")
	keys := strings.Join(order, ", ")
	var text strings.Builder
	fmt.Fprintf(&text, `SELECT %s, sum(used >> 32), sum(used & 4294967295), sum(held >> 32), sum(held & 4294967295), sum(calls)
FROM (
SELECT s.start%s, s.meter, s.used, s.held, s.calls
FROM (
%s) s%s
)`, keys, columns.String(), strings.Join(b.tables(filter), "UNION ALL\n"), joins.String())
	if after := plan.After; after != nil {
		values := []string{b.argument(after.Start.Unix())}
		for _, value := range after.Group {
			values = append(values, b.argument(value))
		}
		values = append(values, b.argument(string(after.Meter)))
		fmt.Fprintf(&text, "\nWHERE (%s) > (%s)", keys, strings.Join(values, ", "))
	}
	fmt.Fprintf(&text, "\nGROUP BY %s ORDER BY %s LIMIT %s", keys, keys, b.argument(limit))
	return text.String(), b.arguments
}

// filter returns the conditions on every table that is read, after its span.
func (b *reportBuilder) filter() string {
	var filter strings.Builder
	if b.plan.Account != "" {
		filter.WriteString(" AND account = " + b.argument(b.plan.Account))
	}
	if len(b.plan.Meters) > 0 {
		meters := make([]string, len(b.plan.Meters))
		for i, meter := range b.plan.Meters {
			meters[i] = b.argument(string(meter))
		}
		filter.WriteString(" AND meter IN (" + strings.Join(meters, ", ") + ")")
	}
	for _, name := range slices.Sorted(maps.Keys(b.plan.Labels)) {
		fmt.Fprintf(&filter, " AND labels IN (SELECT labels FROM label_values WHERE name = %s AND value = %s)",
			b.argument(name), b.argument(b.plan.Labels[name]))
	}
	return filter.String()
}

// tables returns what is read, each as a SELECT. Starts are Unix seconds.
func (b *reportBuilder) tables(filter string) []string {
	const hourSeconds, daySeconds = 3600, 24 * 3600
	var tables []string
	read := func(table, start, column string, seconds int64, span reporting.Span) {
		tables = append(tables, fmt.Sprintf("SELECT %s AS start, account, labels, meter, used, held, calls FROM %s WHERE %s >= %s AND %s < %s%s\n",
			start, table, column, b.argument(span.From.Unix()/seconds), column, b.argument(span.To.Unix()/seconds), filter))
	}
	byHour, byDay := fmt.Sprintf("hour * %d", hourSeconds), fmt.Sprintf("day * %d", daySeconds)
	switch b.plan.Grain {
	case ledger.GrainMonth:
		byDay = fmt.Sprintf("unixepoch(%s, 'unixepoch', 'start of month')", byDay)
	case ledger.GrainTotal:
		byHour = b.argument(b.plan.Start.Unix())
		byDay = byHour
	}
	if b.part.ReadsDays() {
		read("usage_days", byDay, "day", daySeconds, b.part.Days)
	}
	for _, span := range b.part.Hours {
		read("usage_hours", byHour, "hour", hourSeconds, span)
	}
	return tables
}
