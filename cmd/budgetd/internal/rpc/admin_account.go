package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
	"github.com/budgetd/budgetd/quota/policystore"
)

func accountOut(account quota.Account, whole bool) (*budgetv1.Account, error) {
	out := &budgetv1.Account{Name: account.Name, Plan: account.Plan, TimeZone: account.TimeZone, AnchorDay: int32(account.AnchorDay)}
	if !whole {
		return out, nil
	}
	text, err := policyfile.Marshal(&policyfile.Document{Accounts: []quota.Account{account}})
	out.Policy = string(text)
	return out, err
}

// accountFault has the names of the request's fields for those of the domain.
func (a *admin) accountFault(ctx context.Context, name string, err error) error {
	if errors.Is(err, policystore.ErrNotFound) || errors.Is(err, quota.ErrUnknownAccount) {
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("account: %q is unknown", name))
	}
	fields := quota.FieldErrors(err)
	if len(fields) == 0 {
		return a.failed(ctx, err, "")
	}
	var faults []*budgetv1.InvalidField
	for _, f := range fields[:min(len(fields), maxFaults)] {
		field := strings.TrimPrefix(strings.TrimPrefix(f.Field, "accounts."+name), ".")
		if field == "account" || field == "" {
			field = "name"
		}
		faults = append(faults, &budgetv1.InvalidField{Field: inNothing.jsonPath(field), Problem: f.Problem})
	}
	return invalid(faults...)
}

// CreateAccount implements budgetv1connect.AdminServiceHandler.
func (a *admin) CreateAccount(ctx context.Context, request *connect.Request[budgetv1.CreateAccountRequest]) (*connect.Response[budgetv1.CreateAccountResponse], error) {
	m := request.Msg
	if err := accountName("name", m.Name); err != nil {
		return nil, err
	}
	if m.Plan == "" {
		return nil, invalid(&budgetv1.InvalidField{Field: "plan", Problem: "is missing", Bound: "the name of a plan"})
	}
	account := quota.Account{Name: m.Name, Plan: m.Plan, TimeZone: m.TimeZone, AnchorDay: int(m.AnchorDay)}
	if account.TimeZone == "" {
		account.TimeZone = "UTC"
	}
	if account.AnchorDay == 0 {
		account.AnchorDay = 1
	}
	change, err := a.parts.Policies.CreateAccount(ctx, account, a.by(ctx))
	if err != nil {
		return nil, a.accountFault(ctx, m.Name, err)
	}
	a.follow(ctx)
	a.changed(ctx, "an account was created", "account", m.Name, "plan", m.Plan, "version", change.Version)
	out, err := accountOut(account, true)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	return connect.NewResponse(&budgetv1.CreateAccountResponse{Account: out, PolicyVersion: change.Version}), nil
}

// UpdateAccount implements budgetv1connect.AdminServiceHandler.
func (a *admin) UpdateAccount(ctx context.Context, request *connect.Request[budgetv1.UpdateAccountRequest]) (*connect.Response[budgetv1.UpdateAccountResponse], error) {
	m := request.Msg
	if err := accountName("name", m.Name); err != nil {
		return nil, err
	}
	switch {
	case m.Plan == nil && m.TimeZone == nil && m.AnchorDay == nil:
		return nil, invalid(&budgetv1.InvalidField{Problem: "nothing is to be changed", Bound: "at least one of plan, timeZone and anchorDay"})
	case m.TimeZone != nil && m.GetTimeZone() == "":
		return nil, invalid(&budgetv1.InvalidField{Field: "timeZone", Problem: "is empty", Bound: `an IANA time zone such as "Asia/Tokyo"; leave it out to keep the zone`})
	case m.AnchorDay != nil && (m.GetAnchorDay() < 1 || m.GetAnchorDay() > 31):
		return nil, invalid(&budgetv1.InvalidField{Field: "anchorDay", Problem: fmt.Sprintf("%d is no day of the month", m.GetAnchorDay()), Bound: "1 to 31"})
	}
	var now quota.Account
	change, err := a.parts.Policies.ChangeAccount(ctx, m.Name, func(account *quota.Account) {
		if m.Plan != nil {
			account.Plan = m.GetPlan()
		}
		if m.TimeZone != nil {
			account.TimeZone = m.GetTimeZone()
		}
		if m.AnchorDay != nil {
			account.AnchorDay = int(m.GetAnchorDay())
		}
		now = *account
	}, a.by(ctx))
	if err != nil {
		return nil, a.accountFault(ctx, m.Name, err)
	}
	if change.Changes() {
		a.follow(ctx)
		a.changed(ctx, "an account was changed", "account", m.Name, "plan", now.Plan, "version", change.Version)
	}
	out, err := accountOut(now, true)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	answer := &budgetv1.UpdateAccountResponse{Account: out, PolicyVersion: change.Version}
	if change.Changes() {
		answer.Change = changeOut(change)
	}
	return connect.NewResponse(answer), nil
}

// stored finds an account as it is stored.
func (a *admin) stored(ctx context.Context, field, name string) (quota.Account, error) {
	if err := accountName(field, name); err != nil {
		return quota.Account{}, err
	}
	account, err := a.parts.Policies.Account(ctx, name)
	if err != nil {
		return quota.Account{}, a.accountFault(ctx, name, err)
	}
	return account, nil
}

// GetAccount implements budgetv1connect.AdminServiceHandler.
func (a *admin) GetAccount(ctx context.Context, request *connect.Request[budgetv1.GetAccountRequest]) (*connect.Response[budgetv1.GetAccountResponse], error) {
	account, err := a.stored(ctx, "name", request.Msg.Name)
	if err != nil {
		return nil, err
	}
	out, err := accountOut(account, true)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	return connect.NewResponse(&budgetv1.GetAccountResponse{Account: out}), nil
}

// ListAccounts implements budgetv1connect.AdminServiceHandler.
func (a *admin) ListAccounts(ctx context.Context, request *connect.Request[budgetv1.ListAccountsRequest]) (*connect.Response[budgetv1.ListAccountsResponse], error) {
	size, err := pageSize(request.Msg.PageSize, defaultPage, maxPage)
	if err != nil {
		return nil, err
	}
	after := request.Msg.PageToken
	if after != "" && quota.ValidateAccountName(after) != nil {
		return nil, badPageToken()
	}
	accounts, err := a.parts.Policies.Accounts(ctx, after, size)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	answer := &budgetv1.ListAccountsResponse{}
	for _, account := range accounts {
		out, _ := accountOut(account, false) // it fails only for the whole
		answer.Accounts = append(answer.Accounts, out)
	}
	if len(accounts) == size {
		answer.NextPageToken = accounts[size-1].Name
	}
	return connect.NewResponse(answer), nil
}

// RemoveAccount implements budgetv1connect.AdminServiceHandler.
func (a *admin) RemoveAccount(ctx context.Context, request *connect.Request[budgetv1.RemoveAccountRequest]) (*connect.Response[budgetv1.RemoveAccountResponse], error) {
	name := request.Msg.Name
	if err := accountName("name", name); err != nil {
		return nil, err
	}
	change, err := a.parts.Policies.Remove(ctx, policystore.KindAccount, name, a.by(ctx))
	if err != nil {
		return nil, a.accountFault(ctx, name, err)
	}
	a.follow(ctx)
	a.changed(ctx, "an account was removed", "account", name, "version", change.Version)
	return connect.NewResponse(&budgetv1.RemoveAccountResponse{PolicyVersion: change.Version}), nil
}
