package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	"github.com/budgetd/budgetd/ledger"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
)

// Bounds of a report.
const (
	defaultReportPage = 1000
	maxReportMeters   = 32
)

var grains = map[budgetv1.UsageGrain]ledger.Grain{
	budgetv1.UsageGrain_USAGE_GRAIN_UNSPECIFIED: ledger.GrainDay,
	budgetv1.UsageGrain_USAGE_GRAIN_HOUR:        ledger.GrainHour,
	budgetv1.UsageGrain_USAGE_GRAIN_DAY:         ledger.GrainDay,
	budgetv1.UsageGrain_USAGE_GRAIN_MONTH:       ledger.GrainMonth,
	budgetv1.UsageGrain_USAGE_GRAIN_TOTAL:       ledger.GrainTotal,
}

// ListUsage implements budgetv1connect.BudgetServiceHandler.
func (s *service) ListUsage(ctx context.Context, request *connect.Request[budgetv1.ListUsageRequest]) (*connect.Response[budgetv1.ListUsageResponse], error) {
	q, err := s.reportQuery(ctx, request.Msg)
	if err != nil {
		return nil, err
	}
	report, err := s.broker.Ledger.Report(ctx, q)
	switch {
	case errors.Is(err, ledger.ErrInvalid):
		return nil, ledgerField(err)
	case errors.Is(err, quota.ErrOverflow):
		return nil, connect.NewError(connect.CodeOutOfRange, errors.New("a sum of the report leaves 64 bits; ask for a shorter span, a finer grain or one account"))
	case err != nil:
		return nil, s.asConnect(ctx, err, inNothing)
	}
	if len(report.Rows) == 0 && q.Account != "" && q.After == "" {
		// One that was removed still has what it used; without any it is
		// likely misspelt.
		if err := s.knows(q.Account); err != nil {
			return nil, err
		}
	}
	answer := &budgetv1.ListUsageResponse{NextPageToken: report.Next}
	from, to := q.Span()
	answer.From, answer.To = timeOut(from), timeOut(to)
	for i := range report.Rows {
		row := &report.Rows[i]
		out := &budgetv1.UsageRow{Start: timeOut(row.Start), Meter: string(row.Meter), Used: int64(row.Used), Held: int64(row.Held), Calls: row.Calls}
		for j, name := range q.GroupBy {
			if row.Absent[j] {
				continue
			}
			if out.Labels == nil {
				out.Labels = make(map[string]string, len(q.GroupBy))
			}
			out.Labels[name] = row.Group[j]
		}
		answer.Rows = append(answer.Rows, out)
	}
	return connect.NewResponse(answer), nil
}

func (s *service) reportQuery(ctx context.Context, m *budgetv1.ListUsageRequest) (ledger.ReportQuery, error) {
	q := ledger.ReportQuery{GroupBy: m.GroupBy, Labels: m.Labels, After: m.PageToken}
	fail := func(err error) (ledger.ReportQuery, error) { return ledger.ReportQuery{}, err }
	who, _ := auth.FromContext(ctx)
	everyone := len(who.Accounts) == 1 && who.Accounts[0] == auth.EveryAccount
	var err error
	if m.Account != "" || !everyone {
		if q.Account, err = s.account(ctx, m.Account); err != nil {
			return fail(s.asConnect(ctx, err, inNothing))
		}
	}
	if q.From, err = instantIn("from", m.From); err != nil {
		return fail(err)
	}
	if m.From == nil {
		return fail(invalid(&budgetv1.InvalidField{Field: "from", Problem: "is missing", Bound: "the first instant of the span"}))
	}
	if q.To, err = instantIn("to", m.To); err != nil {
		return fail(err)
	}
	if m.To == nil {
		q.To = time.Now() // a report is of the past: any node's clock will do
	}
	var known bool
	if q.Grain, known = grains[m.Grain]; !known {
		return fail(invalid(&budgetv1.InvalidField{Field: "grain", Problem: "is unknown", Bound: "USAGE_GRAIN_HOUR, _DAY, _MONTH or _TOTAL"}))
	}
	if q.Limit, err = pageSize(m.PageSize, defaultReportPage, ledger.MaxPage); err != nil {
		return fail(err)
	}
	if len(m.Meters) > maxReportMeters {
		return fail(invalid(&budgetv1.InvalidField{Field: "meters", Problem: fmt.Sprintf("%d are listed", len(m.Meters)), Bound: fmt.Sprintf("at most %d", maxReportMeters)}))
	}
	if err := quota.ValidateLabels(m.Labels); err != nil {
		return fail(invalid(&budgetv1.InvalidField{Field: "labels", Problem: strings.TrimPrefix(err.Error(), "labels: ")}))
	}
	for i, label := range m.GroupBy {
		if label == quota.LabelAccount {
			continue
		}
		if err := quota.ValidateLabels(map[string]string{label: ""}); err != nil {
			_, problem, _ := strings.Cut(err.Error(), "]: ")
			return fail(invalid(&budgetv1.InvalidField{Field: fmt.Sprintf("groupBy[%d]", i), Problem: problem}))
		}
	}
	for _, meter := range m.Meters {
		q.Meters = append(q.Meters, quota.Meter(meter))
	}
	return q, nil
}
