package pgledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/internal/posting"
	"github.com/budgetd/budgetd/ledger/internal/reporting"
	"github.com/budgetd/budgetd/quota"
)

// Report implements [ledger.Reader].
func (l *Ledger) Report(ctx context.Context, query ledger.ReportQuery) (ledger.Report, error) {
	plan, err := reporting.NewPlan(query)
	if err != nil {
		return ledger.Report{}, err
	}
	if err := l.enter(); err != nil {
		return ledger.Report{}, err
	}
	defer l.calls.Done()
	rows, err := l.report(ctx, plan)
	if server := (*pgconn.PgError)(nil); errors.As(err, &server) && server.Code == codeNumericOutOfRange {
		return ledger.Report{}, fmt.Errorf("report: a sum leaves 64 bits, ask for a shorter span or for finer groups: %w", quota.ErrOverflow)
	}
	if err != nil {
		return ledger.Report{}, wrap("report", err)
	}
	return plan.Page(rows), nil
}

// prepareReport says whether the server is a standby, and gives the transaction
// memory to sum up by hash what would else be sorted on disk. Compiling the
// statement takes longer than it saves.
const prepareReport = `SELECT pg_is_in_recovery(), set_config('work_mem', '32MB', true), set_config('jit', 'off', true)`

func (l *Ledger) report(ctx context.Context, plan *reporting.Plan) (report []ledger.ReportRow, err error) {
	// One snapshot, so that parts belong together.
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, l.aside, options, func(tx pgx.Tx) error {
		var standby bool
		if err := tx.QueryRow(ctx, prepareReport).Scan(&standby, nil, nil); err != nil {
			return err
		}
		if standby {
			return fmt.Errorf("%w: %w", ledger.ErrUnavailable, errStandby)
		}
		for part := range plan.Parts() {
			rows, err := reportPart(ctx, tx, plan, part, plan.Missing(len(report)))
			if err != nil {
				return err
			}
			if report = append(report, rows...); plan.Missing(len(report)) == 0 {
				break
			}
		}
		return nil
	})
	return report, err
}

func reportPart(ctx context.Context, tx pgx.Tx, plan *reporting.Plan, part reporting.Part, limit int) ([]ledger.ReportRow, error) {
	text, arguments, err := reportStatement(plan, part, limit)
	if err != nil {
		return nil, err
	}
	// Planned anew each time, for this span: a plan for any span reads too much.
	rows, err := tx.Query(ctx, text, append([]any{pgx.QueryExecModeCacheDescribe}, arguments...)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (ledger.ReportRow, error) {
		var r ledger.ReportRow
		group := make([]string, len(plan.GroupBy))
		into := []any{&r.Start}
		for i := range group {
			into = append(into, &group[i])
		}
		err := row.Scan(append(into, &r.Meter, &r.Used, &r.Held, &r.Calls)...)
		reporting.SetGroup(&r, group)
		return r, err
	})
}

// reportBuilder writes the statement of a report.
type reportBuilder struct {
	plan      *reporting.Plan
	part      reporting.Part
	filter    string // of every table that is read, after its span
	arguments []any
}

// argument returns the placeholder of an argument.
func (b *reportBuilder) argument(value any) string {
	b.arguments = append(b.arguments, value)
	return "$" + strconv.Itoa(len(b.arguments))
}

// reportStatement returns a statement of three steps: it sums by sets of labels
// what lies in the part, then sums those by the labels that are asked for, and
// takes at most limit rows of it.
func reportStatement(plan *reporting.Plan, part reporting.Part, limit int) (string, []any, error) {
	b := &reportBuilder{plan: plan, part: part}
	if err := b.setFilter(); err != nil {
		return "", nil, err
	}
	byAccount, byLabels := false, false
	groups := make([]string, len(plan.GroupBy))
	for i, name := range plan.GroupBy {
		if name == reporting.Account {
			byAccount = true
			groups[i] = `'` + reporting.Present + `' || s.account`
		} else {
			byLabels = true
			groups[i] = `coalesce('` + reporting.Present + `' || (l.labels ->> ` + b.argument(name) + `::text), '')`
		}
	}
	// Where all rows have one start, it is no key: working it out for each row
	// takes a third of the time.
	keys, start := []string{"start"}, "s.start"
	if !part.Start.IsZero() {
		keys, start = nil, b.argument(part.Start)+"::timestamp"
	}
	if byAccount {
		keys = append(keys, "account")
	}
	if byLabels {
		keys = append(keys, "labels")
	}
	keys = append(keys, "meter")

	var text strings.Builder
	fmt.Fprintf(&text, "WITH sums AS (\n"+
		"SELECT %[1]s, sum(used) AS used, sum(held) AS held, sum(calls) AS calls\n"+
		"FROM (\n%[2]s) AS read GROUP BY %[1]s\n), report AS (\n", strings.Join(keys, ", "), strings.Join(b.tables(), "UNION ALL\n"))
	order := make([]string, 0, 2+len(groups))
	order = append(order, "start")
	text.WriteString("SELECT " + start + " AS start")
	for i, group := range groups {
		column := "g" + strconv.Itoa(i)
		order = append(order, column)
		fmt.Fprintf(&text, ", (%s) COLLATE \"C\" AS %s", group, column)
	}
	order = append(order, "meter")
	text.WriteString(", s.meter, sum(s.used)::bigint AS used, sum(s.held)::bigint AS held, sum(s.calls)::bigint AS calls\nFROM sums s")
	if byLabels {
		text.WriteString(" LEFT JOIN label_sets l ON l.id = s.labels")
	}
	columns := strings.Join(order, ", ")
	fmt.Fprintf(&text, "\nGROUP BY %s\n)\nSELECT %s, used, held, calls FROM report", columns, columns)
	if after := plan.After; after != nil {
		values := []string{b.argument(after.Start) + "::timestamp"}
		for _, value := range after.Group {
			values = append(values, b.argument(value)+"::text")
		}
		values = append(values, b.argument(string(after.Meter))+"::text")
		fmt.Fprintf(&text, "\nWHERE (%s) > (%s)", columns, strings.Join(values, ", "))
	}
	fmt.Fprintf(&text, "\nORDER BY %s LIMIT %s", columns, b.argument(limit))
	return text.String(), b.arguments, nil
}

func (b *reportBuilder) setFilter() error {
	var filter strings.Builder
	if b.plan.Account != "" {
		filter.WriteString(" AND account = " + b.argument(b.plan.Account))
	}
	if len(b.plan.Meters) > 0 {
		meters := make([]string, len(b.plan.Meters))
		for i, meter := range b.plan.Meters {
			meters[i] = string(meter)
		}
		filter.WriteString(" AND meter = ANY (" + b.argument(meters) + "::text[])")
	}
	if len(b.plan.Labels) > 0 {
		labels, err := posting.EncodeLabels(b.plan.Labels)
		if err != nil {
			return err
		}
		filter.WriteString(" AND labels IN (SELECT id FROM label_sets WHERE label_sets.labels @> " + b.argument(labels) + "::jsonb)")
	}
	b.filter = filter.String()
	return nil
}

// tables returns what is read, each as a SELECT: sums, and the deltas that are
// not part of them yet. Their start is of no use where the part has one of its
// own.
func (b *reportBuilder) tables() []string {
	var tables []string
	read := func(table, start, column, kind string, span reporting.Span) {
		tables = append(tables, fmt.Sprintf("SELECT %s AS start, account, labels, meter, used, held, calls FROM %s WHERE %s >= %s::%s AND %s < %s::%s%s\n",
			start, table, column, b.argument(span.From), kind, column, b.argument(span.To), kind, b.filter))
	}
	byHour, byDay := `hour AT TIME ZONE 'UTC'`, `day::timestamp`
	switch b.plan.Grain {
	case ledger.GrainDay:
		byHour = `date_trunc('day', ` + byHour + `)`
	case ledger.GrainMonth:
		byHour, byDay = `date_trunc('month', `+byHour+`)`, `date_trunc('month', `+byDay+`)`
	}
	if b.part.ReadsDays() {
		read("usage_days", byDay, "day", "date", b.part.Days)
	}
	for _, span := range b.part.Hours {
		read("usage_hours", byHour, "hour", "timestamptz", span)
	}
	read("usage_deltas", byHour, "hour", "timestamptz", b.part.Whole)
	return tables
}
