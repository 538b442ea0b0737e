package rpc

import (
	"context"

	"connectrpc.com/connect"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policystore"
)

var modesIn = map[budgetv1.LimitMode]quota.Mode{
	budgetv1.LimitMode_LIMIT_MODE_ENFORCE: quota.ModeEnforce,
	budgetv1.LimitMode_LIMIT_MODE_SHADOW:  quota.ModeShadow,
	budgetv1.LimitMode_LIMIT_MODE_OFF:     quota.ModeOff,
}

// SwitchLimits implements budgetv1connect.AdminServiceHandler.
func (a *admin) SwitchLimits(ctx context.Context, request *connect.Request[budgetv1.SwitchLimitsRequest]) (*connect.Response[budgetv1.SwitchLimitsResponse], error) {
	m := request.Msg
	mode, known := modesIn[m.Mode]
	places := 0
	for _, place := range []string{m.Plan, m.Pool, m.Account} {
		if place != "" {
			places++
		}
	}
	switch {
	case !known:
		return nil, invalid(&budgetv1.InvalidField{Field: "mode", Problem: "is missing or not one", Bound: "LIMIT_MODE_ENFORCE, LIMIT_MODE_SHADOW or LIMIT_MODE_OFF"})
	case m.All == (m.Limit != ""):
		return nil, invalid(&budgetv1.InvalidField{Field: "limit", Problem: "is missing, or stands beside all", Bound: "the name of a limit, or all"})
	case places > 1:
		return nil, invalid(&budgetv1.InvalidField{Field: "plan", Problem: "is one of several places", Bound: "at most one of plan, pool and account"})
	}
	change, err := a.parts.Policies.SwitchLimits(ctx, policystore.Switch{
		Limit: m.Limit, All: m.All, Plan: m.Plan, Pool: m.Pool, Account: m.Account, Mode: mode, IfVersion: m.IfVersion,
	}, a.by(ctx), m.DryRun)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	if !m.DryRun && change.Changes() {
		a.follow(ctx)
		a.changed(ctx, "limits were switched", "mode", mode.Word(), "limit", m.Limit, "all", m.All, "version", change.Version)
	}
	return connect.NewResponse(&budgetv1.SwitchLimitsResponse{Change: changeOut(change), Warnings: change.Warnings}), nil
}
