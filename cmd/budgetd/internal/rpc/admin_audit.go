package rpc

import (
	"context"

	"connectrpc.com/connect"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/reservation"
)

// Audit implements budgetv1connect.AdminServiceHandler.
func (a *admin) Audit(ctx context.Context, request *connect.Request[budgetv1.AuditRequest]) (*connect.Response[budgetv1.AuditResponse], error) {
	m := request.Msg
	if m.Account != "" {
		if err := accountName("account", m.Account); err != nil {
			return nil, err
		}
	}
	a.follow(ctx)
	report, err := a.parts.Auditor.Audit(ctx, reservation.AuditQuery{Account: m.Account, Repair: m.Repair, All: m.All})
	if err != nil {
		return nil, a.forAccount(ctx, m.Account, err, inNothing)
	}
	if report.Repaired > 0 {
		a.changed(ctx, "an audit repaired counters", "account", m.Account, "repaired", report.Repaired)
	}
	answer := &budgetv1.AuditResponse{
		Accounts: int64(report.Accounts), Checked: int64(report.Checked), Gaps: int64(report.Gaps), Repaired: int64(report.Repaired),
		Waiting: int64(report.Waiting), MoreCounters: int64(report.LeftOut),
		Unsummed: int64(report.Unsummed), Partial: int64(report.Partial),
		Failed: int64(report.Failed), FailedAccounts: report.FailedAccounts,
	}
	for i := range report.Counters {
		answer.Counters = append(answer.Counters, auditedOut(&report.Counters[i]))
	}
	return connect.NewResponse(answer), nil
}

func auditedOut(c *reservation.AuditedCounter) *budgetv1.AuditedCounter {
	out := &budgetv1.AuditedCounter{
		Account: c.Account, Limit: c.LimitName, LimitId: c.Limit, Scope: c.Scope, Period: c.Period, Meter: string(c.Meter),
		Entries: int64(c.Entries), Posted: int64(c.Row), Version: c.Version, Gap: c.Gap, Repaired: c.Repaired,
	}
	if c.InEngine {
		out.Engine = &budgetv1.EngineCounter{
			Used: int64(c.Used), Version: c.EngineVersion, Held: int64(c.Held), Unposted: int64(c.Unposted),
			HeldByRecords: int64(c.HeldRecords), UnpostedByRecords: int64(c.UnpostedRecords),
		}
	}
	return out
}
