package backtest

import (
	"slices"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
)

// scaled is a * by / of, rounded up, at least 1 and at most quota.MaxAmount.
func scaled(a, by, of quota.Amount) quota.Amount {
	n, ok := quota.MulDivUp(uint64(a), uint64(by), uint64(of))
	if !ok {
		return quota.MaxAmount
	}
	return max(1, quota.Amount(min(n, uint64(quota.MaxAmount))))
}

// aim is a limit of a document whose amount is searched.
type aim struct {
	plan, account, pool int // where it is: the place in the document, -1 elsewhere
	at                  int // in the plan's limits or the account's overrides
	limit               quota.Limit
}

// aimsOf finds the limits of a document that can refuse a call.
func aimsOf(d *policyfile.Document) []aim {
	var aims []aim
	add := func(a aim) {
		if !a.limit.Soft && a.limit.Mode != quota.ModeOff {
			aims = append(aims, a)
		}
	}
	for i := range d.Plans {
		for j, limit := range d.Plans[i].Limits {
			add(aim{plan: i, account: -1, pool: -1, at: j, limit: limit})
		}
	}
	for i := range d.Accounts {
		for j, limit := range d.Accounts[i].Overrides {
			add(aim{plan: -1, account: i, pool: -1, at: j, limit: limit})
		}
	}
	for i := range d.Pools {
		add(aim{plan: -1, account: -1, pool: i, limit: d.Pools[i].Limit})
	}
	return aims
}

// set is a copy of the document in which the limit has another amount.
func (a *aim) set(d *policyfile.Document, amount quota.Amount) *policyfile.Document {
	whole := *d
	limit := withAmount(a.limit, amount)
	switch {
	case a.plan >= 0:
		whole.Plans = slices.Clone(d.Plans)
		p := &whole.Plans[a.plan]
		p.Limits = slices.Clone(p.Limits)
		p.Limits[a.at] = limit
	case a.account >= 0:
		whole.Accounts = slices.Clone(d.Accounts)
		p := &whole.Accounts[a.account]
		p.Overrides = slices.Clone(p.Overrides)
		p.Overrides[a.at] = limit
	default:
		whole.Pools = slices.Clone(d.Pools)
		whole.Pools[a.pool].Limit = limit
	}
	return &whole
}

// unlimited is the plan of accounts that do not meet the limit that stands alone.
const unlimited = "unlimited"

// alone is a document with that limit only, of that amount, enforced.
func (a *aim) alone(d *policyfile.Document, amount quota.Amount) *policyfile.Document {
	limit := withAmount(a.limit, amount)
	limit.Mode = quota.ModeEnforce
	alone := &policyfile.Document{Prices: d.Prices}
	rest := unlimited
	for slices.ContainsFunc(d.Plans, func(p quota.Plan) bool { return p.Name == rest }) {
		rest += "-" // a name of its own
	}
	for i := range d.Plans {
		plan := quota.Plan{Name: d.Plans[i].Name}
		if i == a.plan {
			plan.Limits = []quota.Limit{limit}
		}
		alone.Plans = append(alone.Plans, plan)
	}
	alone.Plans = append(alone.Plans, quota.Plan{Name: rest})
	for i, account := range d.Accounts {
		grants := account.Grants
		overrides := account.Overrides
		account.Grants, account.Overrides = nil, nil
		switch {
		case i == a.account:
			account.Plan, account.Overrides = rest, []quota.Limit{limit}
		case a.plan < 0 || account.Plan != d.Plans[a.plan].Name || slices.ContainsFunc(overrides, func(o quota.Limit) bool { return o.Name == limit.Name }):
			account.Plan = rest
		}
		for _, grant := range grants {
			if grant.Limit == limit.Name && (account.Plan != rest || i == a.account) {
				account.Grants = append(account.Grants, grant)
			}
		}
		alone.Accounts = append(alone.Accounts, account)
	}
	if a.pool >= 0 {
		pool := d.Pools[a.pool]
		pool.Limit = limit
		alone.Pools = []quota.Pool{pool}
	}
	return alone
}

// steps is how many steps the limit can take: up to what an amount, or one of its
// kind, may be.
func (a *aim) steps() int {
	low, high := 0, 0
	for _, ok := stepAmount(high); ok; _, ok = stepAmount(high) {
		high++
	}
	for low < high { // the first step that is too large
		at := (low + high) / 2
		amount, _ := stepAmount(at)
		if withAmount(a.limit, amount).Validate() == nil {
			low = at + 1
		} else {
			high = at
		}
	}
	return low
}
