package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// whichLimits is what the calls about modes have in common to name limits.
type whichLimits interface {
	GetLimit() string
	GetAll() bool
	GetPlan() string
	GetPool() string
	GetAccount() string
}

// switchIn reads which limits are meant.
func switchIn(m whichLimits, ifVersion *int64) (policystore.Switch, error) {
	places := 0
	for _, place := range []string{m.GetPlan(), m.GetPool(), m.GetAccount()} {
		if place != "" {
			places++
		}
	}
	switch {
	case m.GetAll() == (m.GetLimit() != ""):
		return policystore.Switch{}, invalid(&budgetv1.InvalidField{Field: "limit", Problem: "is missing, or stands beside all", Bound: "the name of a limit, or all"})
	case places > 1:
		return policystore.Switch{}, invalid(&budgetv1.InvalidField{Field: "plan", Problem: "is one of several places", Bound: "at most one of plan, pool and account"})
	}
	return policystore.Switch{
		Limit: m.GetLimit(), All: m.GetAll(), Plan: m.GetPlan(), Pool: m.GetPool(), Account: m.GetAccount(), IfVersion: ifVersion,
	}, nil
}

// SwitchLimits implements budgetv1connect.AdminServiceHandler.
func (a *admin) SwitchLimits(ctx context.Context, request *connect.Request[budgetv1.SwitchLimitsRequest]) (*connect.Response[budgetv1.SwitchLimitsResponse], error) {
	m := request.Msg
	mode, known := modesIn[m.Mode]
	if !known {
		return nil, invalid(&budgetv1.InvalidField{Field: "mode", Problem: "is missing or not one", Bound: "LIMIT_MODE_ENFORCE, LIMIT_MODE_SHADOW or LIMIT_MODE_OFF"})
	}
	to, err := switchIn(m, m.IfVersion)
	if err != nil {
		return nil, err
	}
	to.Mode = mode
	var change policystore.Change
	what := "limits were switched"
	if m.Pin {
		what = "limits were pinned"
		change, err = a.pin(ctx, m, to)
	} else {
		for field, stated := range map[string]bool{"reason": m.Reason != "", "pinFor": m.PinFor != nil} {
			if stated {
				return nil, invalid(&budgetv1.InvalidField{Field: field, Problem: "is stated without pin", Bound: "only with pin: the policy itself keeps neither a reason nor an end of a mode"})
			}
		}
		change, err = a.parts.Policies.SwitchLimits(ctx, to, a.by(ctx), m.DryRun)
	}
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	if !m.DryRun && change.Changes() {
		a.follow(ctx)
		a.changed(ctx, what, "mode", mode.Word(), "limit", m.Limit, "all", m.All, "version", change.Version)
	}
	return connect.NewResponse(&budgetv1.SwitchLimitsResponse{Change: changeOut(change), Warnings: change.Warnings}), nil
}

func (a *admin) pin(ctx context.Context, m *budgetv1.SwitchLimitsRequest, to policystore.Switch) (policystore.Change, error) {
	var span time.Duration
	if m.PinFor != nil {
		if span = m.PinFor.AsDuration(); m.PinFor.CheckValid() != nil || span < quota.MinPinSpan || span > quota.MaxPinSpan {
			return policystore.Change{}, invalid(&budgetv1.InvalidField{
				Field: "pinFor", Problem: "is out of bounds",
				Bound: fmt.Sprintf("%s to %s, or absent: until UnpinLimits", quota.FormatSpan(quota.MinPinSpan), quota.FormatSpan(quota.MaxPinSpan)),
			})
		}
	}
	pin := quota.Pin{Limit: to.Limit, Plan: to.Plan, Pool: to.Pool, Account: to.Account, Mode: to.Mode, Reason: m.Reason}
	return a.parts.Policies.PinLimits(ctx, pin, span, a.by(ctx), to.IfVersion, m.DryRun)
}

// UnpinLimits implements budgetv1connect.AdminServiceHandler.
func (a *admin) UnpinLimits(ctx context.Context, request *connect.Request[budgetv1.UnpinLimitsRequest]) (*connect.Response[budgetv1.UnpinLimitsResponse], error) {
	m := request.Msg
	which, err := switchIn(m, m.IfVersion)
	if err != nil {
		return nil, err
	}
	change, err := a.parts.Policies.UnpinLimits(ctx, which, a.by(ctx), m.DryRun)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	if !m.DryRun && change.Changes() {
		a.follow(ctx)
		a.changed(ctx, "limits were let go", "limit", m.Limit, "all", m.All, "pins", change.Count(policystore.Removed), "version", change.Version)
	}
	return connect.NewResponse(&budgetv1.UnpinLimitsResponse{Change: changeOut(change), Warnings: change.Warnings}), nil
}

// ListPins implements budgetv1connect.AdminServiceHandler.
func (a *admin) ListPins(ctx context.Context, _ *connect.Request[budgetv1.ListPinsRequest]) (*connect.Response[budgetv1.ListPinsResponse], error) {
	if err := a.parts.Watcher.Poll(ctx); err != nil && !errors.Is(err, policystore.ErrBroken) {
		return nil, a.failed(ctx, err, "") // an old list would be taken for all there is
	}
	policy := a.parts.Watcher.Current()
	return connect.NewResponse(&budgetv1.ListPinsResponse{Pins: pinsOut(policy), Version: policy.Version}), nil
}

func pinsOut(policy *quota.Policy) (out []*budgetv1.LimitPin) {
	for _, pin := range policy.Pins() {
		out = append(out, &budgetv1.LimitPin{
			Limit: pin.Limit, Plan: pin.Plan, Pool: pin.Pool, Account: pin.Account, Mode: modesOut[pin.Mode],
			PinnedBy: pin.By, Reason: pin.Reason, Since: timeOut(pin.Since), Until: timeOut(pin.Until), Idle: !policy.Covers(pin),
		})
	}
	return out
}

// pinnedOut is what callers may know of a limit that is held at a mode.
func pinnedOut(stated quota.Mode, pin *quota.Pin) *budgetv1.PinnedMode {
	if pin == nil {
		return nil
	}
	return &budgetv1.PinnedMode{Stated: modesOut[stated], Since: timeOut(pin.Since), Until: timeOut(pin.Until)}
}
