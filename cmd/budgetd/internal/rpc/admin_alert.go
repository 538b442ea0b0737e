package rpc

import (
	"context"

	"connectrpc.com/connect"

	"github.com/budgetd/budgetd/ledger/alerts"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// ListAlerts implements budgetv1connect.AdminServiceHandler.
func (a *admin) ListAlerts(ctx context.Context, request *connect.Request[budgetv1.ListAlertsRequest]) (*connect.Response[budgetv1.ListAlertsResponse], error) {
	m := request.Msg
	size, err := pageSize(m.PageSize, defaultPage, maxPage)
	if err != nil {
		return nil, err
	}
	if m.Account != "" {
		if err := accountName("account", m.Account); err != nil {
			return nil, err
		}
	}
	page, err := a.parts.Alerts.List(ctx, alerts.Query{Account: m.Account, After: m.PageToken, Limit: size})
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	answer := &budgetv1.ListAlertsResponse{NextPageToken: page.Next}
	for i := range page.Alerts {
		x := &page.Alerts[i]
		answer.Alerts = append(answer.Alerts, &budgetv1.Alert{
			Account: x.Account, Limit: x.LimitName, Scope: x.Scope, Meter: string(x.Meter), Period: x.Period,
			Percent: int32(x.Percent), Used: int64(x.Used), LimitAmount: int64(x.Amount), RaisedAt: timeOut(x.RaisedAt),
			Delivery: string(x.State), DeliveryAttempts: int32(x.Attempts), DeliveryError: x.LastError,
		})
	}
	return connect.NewResponse(answer), nil
}
