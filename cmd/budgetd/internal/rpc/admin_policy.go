package rpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"connectrpc.com/connect"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota/policyfile"
	"github.com/budgetd/budgetd/quota/policystore"
)

// Bounds of what is said about a policy.
const (
	maxObjects         = 10_000 // of one change
	defaultHistoryPage = 20
	maxHistoryPage     = 100
)

// ApplyPolicy implements budgetv1connect.AdminServiceHandler.
func (a *admin) ApplyPolicy(ctx context.Context, request *connect.Request[budgetv1.ApplyPolicyRequest]) (*connect.Response[budgetv1.ApplyPolicyResponse], error) {
	m := request.Msg
	if err := required("policy", m.Policy, policyfile.MaxBytes); err != nil {
		return nil, err
	}
	document, err := policyfile.Parse([]byte(m.Policy))
	if err != nil {
		return nil, invalid(policyFaults(err)...)
	}
	options := policystore.Options{By: a.by(ctx), Prune: m.Prune, IfVersion: m.IfVersion}
	apply := a.parts.Policies.Apply
	if m.DryRun {
		apply = a.parts.Policies.Diff
	}
	change, err := apply(ctx, document, options)
	if err != nil {
		return nil, a.failed(ctx, err, "policy")
	}
	if !m.DryRun && change.Changes() {
		a.follow(ctx)
		a.changed(ctx, "a policy was applied", "version", change.Version, "added", change.Count(policystore.Added),
			"changed", change.Count(policystore.Changed), "removed", change.Count(policystore.Removed))
	}
	return connect.NewResponse(&budgetv1.ApplyPolicyResponse{Change: changeOut(change), Warnings: change.Warnings}), nil
}

// policyFaults are the faults of a policy file, with their lines.
func policyFaults(err error) []*budgetv1.InvalidField {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []*budgetv1.InvalidField{{Field: "policy", Problem: err.Error()}}
	}
	all := joined.Unwrap()
	var faults []*budgetv1.InvalidField
	for _, fault := range all[:min(len(all), maxFaults)] {
		faults = append(faults, &budgetv1.InvalidField{Field: "policy", Problem: fault.Error()})
	}
	if more := len(all) - maxFaults; more > 0 {
		faults = append(faults, &budgetv1.InvalidField{Field: "policy", Problem: fmt.Sprintf("and %d more faults", more)})
	}
	return faults
}

var actions = map[policystore.Action]budgetv1.PolicyAction{
	policystore.Added:     budgetv1.PolicyAction_POLICY_ACTION_ADDED,
	policystore.Changed:   budgetv1.PolicyAction_POLICY_ACTION_CHANGED,
	policystore.Removed:   budgetv1.PolicyAction_POLICY_ACTION_REMOVED,
	policystore.Unchanged: budgetv1.PolicyAction_POLICY_ACTION_UNCHANGED,
}

func changeOut(change policystore.Change) *budgetv1.PolicyChange {
	out := &budgetv1.PolicyChange{
		FromVersion: change.From, Version: change.Version, ChangedAt: timeOut(change.At), ChangedBy: change.By,
		MoreObjects: int64(max(len(change.Objects)-maxObjects, 0)),
	}
	for _, object := range change.Objects[:min(len(change.Objects), maxObjects)] {
		o := &budgetv1.PolicyObjectChange{Kind: string(object.Kind), Name: object.Name, Action: actions[object.Action]}
		for _, field := range object.Fields {
			o.Fields = append(o.Fields, &budgetv1.PolicyFieldChange{Path: field.Path, Old: field.Old, New: field.New})
		}
		out.Objects = append(out.Objects, o)
	}
	return out
}

// GetPolicy implements budgetv1connect.AdminServiceHandler.
func (a *admin) GetPolicy(ctx context.Context, request *connect.Request[budgetv1.GetPolicyRequest]) (*connect.Response[budgetv1.GetPolicyResponse], error) {
	policy, err := a.parts.Policies.Load(ctx)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	document := policyfile.FromPolicy(policy)
	if request.Msg.OmitAccounts {
		document.Accounts = nil
	}
	text, err := policyfile.Marshal(document)
	if err != nil || len(text) > policyfile.MaxBytes {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("the policy does not fit into a file of %d bytes; set omitAccounts, and list accounts with ListAccounts", policyfile.MaxBytes))
	}
	return connect.NewResponse(&budgetv1.GetPolicyResponse{Policy: string(text), Version: policy.Version, Pins: pinsOut(policy)}), nil
}

// ListPolicyChanges implements budgetv1connect.AdminServiceHandler.
func (a *admin) ListPolicyChanges(ctx context.Context, request *connect.Request[budgetv1.ListPolicyChangesRequest]) (*connect.Response[budgetv1.ListPolicyChangesResponse], error) {
	size, err := pageSize(request.Msg.PageSize, defaultHistoryPage, maxHistoryPage)
	if err != nil {
		return nil, err
	}
	var before int64
	if token := request.Msg.PageToken; token != "" {
		if before, err = strconv.ParseInt(token, 10, 64); err != nil || before < 1 || strconv.FormatInt(before, 10) != token {
			return nil, badPageToken()
		}
	}
	changes, err := a.parts.Policies.History(ctx, before, size)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	answer := &budgetv1.ListPolicyChangesResponse{}
	for _, change := range changes {
		answer.Changes = append(answer.Changes, changeOut(change))
	}
	if len(changes) == size {
		if last := changes[size-1].Version; last > 1 {
			answer.NextPageToken = strconv.FormatInt(last, 10)
		}
	}
	return connect.NewResponse(answer), nil
}
