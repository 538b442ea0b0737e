package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policystore"
)

func (a *admin) grantOut(account string, g quota.Grant) *budgetv1.Grant {
	return &budgetv1.Grant{
		Meter: string(a.meterOf(account, g.Limit)),
		Name:  g.Name, Limit: g.Limit, Scope: g.Scope, Amount: int64(g.Amount),
		From: timeOut(g.From), Until: timeOut(g.Until), Priority: int32(g.Priority), Reason: g.Reason,
	}
}

// AddGrant implements budgetv1connect.AdminServiceHandler.
func (a *admin) AddGrant(ctx context.Context, request *connect.Request[budgetv1.AddGrantRequest]) (*connect.Response[budgetv1.AddGrantResponse], error) {
	m := request.Msg
	if err := accountName("account", m.Account); err != nil {
		return nil, err
	}
	if m.Grant == nil {
		return nil, invalid(&budgetv1.InvalidField{Field: "grant", Problem: "is missing", Bound: "name, limit and amount at least"})
	}
	g := quota.Grant{
		Name: m.Grant.Name, Limit: m.Grant.Limit, Scope: m.Grant.Scope, Amount: quota.Amount(m.Grant.Amount),
		Priority: int(m.Grant.Priority), Reason: m.Grant.Reason,
	}
	var err error
	if g.From, err = instantIn("grant.from", m.Grant.From); err != nil {
		return nil, err
	}
	if g.Until, err = instantIn("grant.until", m.Grant.Until); err != nil {
		return nil, err
	}
	a.follow(ctx)
	meter := a.meterOf(m.Account, g.Limit)
	if stated := m.Grant.Meter; stated != "" && meter != "" && stated != string(meter) {
		return nil, invalid(&budgetv1.InvalidField{Field: "grant.meter", Problem: fmt.Sprintf("%.64q is not what the quota counts", stated), Bound: string(meter)})
	}
	g.Money = meter == quota.MeterCost
	if err := g.Validate(); err != nil {
		return nil, a.failed(ctx, err, "grant")
	}
	change, err := a.parts.Policies.AddGrant(ctx, m.Account, g, a.by(ctx))
	switch {
	case errors.Is(err, policystore.ErrGrantExists):
		return a.sameGrant(ctx, m.Account, g)
	case err != nil:
		return nil, a.grantFault(ctx, m.Account, g.Name, err)
	}
	a.follow(ctx)
	a.changed(ctx, "a grant was added", "account", m.Account, "grant", g.Name, "limit", g.Limit, "amount", int64(g.Amount), "version", change.Version)
	kept, err := a.grant(ctx, m.Account, g.Name)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&budgetv1.AddGrantResponse{Grant: a.grantOut(m.Account, kept), PolicyVersion: change.Version}), nil
}

// meterOf is what the account's quota counts; "" when this node knows no such
// quota, which the store then finds out.
func (a *admin) meterOf(account, limit string) quota.Meter {
	limits, err := a.broker.Policies.Current().Limits(account)
	if err != nil {
		return ""
	}
	for _, l := range limits {
		if l.Pool == "" && l.Limit.Name == limit && l.Limit.Kind == quota.KindQuota {
			return l.Limit.Meter
		}
	}
	return ""
}

// grant reads a grant as it is kept.
func (a *admin) grant(ctx context.Context, account, name string) (quota.Grant, error) {
	stored, err := a.stored(ctx, "account", account)
	if err != nil {
		return quota.Grant{}, err
	}
	i := slices.IndexFunc(stored.Grants, func(g quota.Grant) bool { return g.Name == name })
	if i < 0 {
		return quota.Grant{}, connect.NewError(connect.CodeNotFound, errors.New("grant: the account has none of that name any more"))
	}
	return stored.Grants[i], nil
}

// sameGrant answers a repeat, whose grant exists.
func (a *admin) sameGrant(ctx context.Context, account string, g quota.Grant) (*connect.Response[budgetv1.AddGrantResponse], error) {
	kept, err := a.grant(ctx, account, g.Name)
	if err != nil {
		return nil, err
	}
	if g.From.IsZero() {
		g.From = kept.From
	}
	if !kept.Equal(g) {
		return nil, connect.NewError(connect.CodeAlreadyExists, errors.New("grant.name: the account has another grant of that name; choose another name, or remove that one"))
	}
	version, err := a.parts.Policies.Version(ctx)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	return connect.NewResponse(&budgetv1.AddGrantResponse{Grant: a.grantOut(account, kept), PolicyVersion: version}), nil
}

// grantFault has the names of the request's fields for those of the domain.
func (a *admin) grantFault(ctx context.Context, account, name string, err error) error {
	if errors.Is(err, quota.ErrUnknownAccount) {
		return unknownAccount(account)
	}
	var faults []*budgetv1.InvalidField
	for _, f := range quota.FieldErrors(err) {
		field := strings.TrimPrefix(f.Field, "accounts."+account+".")
		if rest, ok := strings.CutPrefix(field, "grants."+name+"."); ok {
			field = "grant." + rest
		}
		faults = append(faults, &budgetv1.InvalidField{Field: field, Problem: f.Problem})
	}
	if len(faults) > 0 {
		return invalid(faults[:min(len(faults), maxFaults)]...)
	}
	return a.failed(ctx, err, "")
}

// RemoveGrant implements budgetv1connect.AdminServiceHandler.
func (a *admin) RemoveGrant(ctx context.Context, request *connect.Request[budgetv1.RemoveGrantRequest]) (*connect.Response[budgetv1.RemoveGrantResponse], error) {
	m := request.Msg
	if err := accountName("account", m.Account); err != nil {
		return nil, err
	}
	if err := required("name", m.Name, quota.MaxLimitIDBytes); err != nil {
		return nil, err
	}
	change, err := a.parts.Policies.RemoveGrant(ctx, m.Account, m.Name, a.by(ctx))
	if err != nil {
		return nil, a.grantFault(ctx, m.Account, m.Name, err)
	}
	a.follow(ctx)
	a.changed(ctx, "a grant was removed", "account", m.Account, "grant", m.Name, "version", change.Version)
	return connect.NewResponse(&budgetv1.RemoveGrantResponse{PolicyVersion: change.Version}), nil
}

// ListGrants implements budgetv1connect.AdminServiceHandler.
func (a *admin) ListGrants(ctx context.Context, request *connect.Request[budgetv1.ListGrantsRequest]) (*connect.Response[budgetv1.ListGrantsResponse], error) {
	account, err := a.stored(ctx, "account", request.Msg.Account)
	if err != nil {
		return nil, err
	}
	grants := slices.Clone(account.Grants)
	slices.SortFunc(grants, quota.Grant.Compare)
	left, err := a.broker.GrantsLeft(ctx, account.Name)
	if err != nil { // the list itself is worth more than the error
		a.log.Warn("what is left of grants can't be read", "account", account.Name, "error", err)
	}
	answer := &budgetv1.ListGrantsResponse{}
	for _, g := range grants {
		out := a.grantOut(account.Name, g)
		if amount, known := left[g.Name]; known {
			out.Left = new(int64(amount))
		}
		answer.Grants = append(answer.Grants, out)
	}
	return connect.NewResponse(answer), nil
}
