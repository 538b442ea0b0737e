package policyfile

import (
	"cmp"
	"slices"

	"github.com/budgetd/budgetd/quota"
)

// Document is what one file states: some plans, pools, accounts and prices,
// each list sorted by name (and prices by instant). Defaults are left out as they were in the file. A Document
// need not be whole: an account may name a plan that another document states.
type Document struct {
	Plans    []quota.Plan
	Pools    []quota.Pool
	Accounts []quota.Account
	Prices   []quota.ModelPrice
}

// Policy builds the policy that the document states by itself. The error joins
// the faults that only the whole shows, such as an account whose plan is not
// stated, as [quota.FieldError] values.
func (d *Document) Policy(version int64) (*quota.Policy, error) {
	policy, err := quota.NewPolicy(d.Plans, d.Pools, d.Accounts, version)
	if err != nil {
		return nil, err
	}
	return policy.With(d.Prices, nil)
}

// FromPolicy returns the document that states the whole policy.
func FromPolicy(policy *quota.Policy) *Document {
	d := &Document{}
	for _, plan := range policy.Plans {
		d.Plans = append(d.Plans, plan)
	}
	for _, pool := range policy.Pools {
		d.Pools = append(d.Pools, pool)
	}
	for _, account := range policy.Accounts {
		d.Accounts = append(d.Accounts, account)
	}
	d.Prices = slices.Clone(policy.Prices)
	d.sort()
	return d
}

// Merge returns what d states with everything that change states put over it.
// A plan, pool or account of change replaces the one of the same name as a
// whole, and its prices of a model all that there were of it; what change doesn't name stays. Neither argument is changed.
func (d *Document) Merge(change *Document) *Document {
	merged := &Document{
		Plans:    mergeByName(d.Plans, change.Plans, planName),
		Pools:    mergeByName(d.Pools, change.Pools, poolName),
		Accounts: mergeByName(d.Accounts, change.Accounts, accountName),
		Prices:   mergeByName(d.Prices, change.Prices, quota.ModelPrice.Name),
	}
	merged.sort()
	return merged
}

func planName(p quota.Plan) string       { return p.Name }
func poolName(p quota.Pool) string       { return p.Name }
func accountName(a quota.Account) string { return a.Name }

func mergeByName[T any](base, change []T, name func(T) string) []T {
	changed := make(map[string]bool, len(change))
	for _, item := range change {
		changed[name(item)] = true
	}
	var merged []T
	for _, item := range base {
		if !changed[name(item)] {
			merged = append(merged, item)
		}
	}
	return append(merged, change...)
}

func (d *Document) sort() {
	slices.SortFunc(d.Plans, func(a, b quota.Plan) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(d.Pools, func(a, b quota.Pool) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(d.Accounts, func(a, b quota.Account) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(d.Prices, func(a, b quota.ModelPrice) int {
		return cmp.Or(cmp.Compare(a.Name(), b.Name()), a.From.Compare(b.From))
	})
}
