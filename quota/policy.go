package quota

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrUnknownAccount says that the policy has no such account. The error that a
// [Policy] returns is an [*UnknownAccountError], which matches it.
var ErrUnknownAccount = errors.New("unknown account")

// UnknownAccountError names the account that the policy does not have.
type UnknownAccountError struct {
	Account string
}

// Error names the account, cut to a bounded length.
func (e *UnknownAccountError) Error() string {
	return fmt.Sprintf("%v %s", ErrUnknownAccount, quoteShort(e.Account))
}

// Is says whether target is [ErrUnknownAccount].
func (e *UnknownAccountError) Is(target error) bool { return target == ErrUnknownAccount }

// Policy is everything that decides which limits a call meets. It is
// immutable once built by [NewPolicy], and safe for concurrent use; a change
// makes a new one. Its maps are for reading.
type Policy struct {
	Version  int64 // grows with every change of the store that it came from
	Plans    map[string]Plan
	Pools    map[string]Pool
	Accounts map[string]Account
	Prices   []ModelPrice // by provider, model and instant

	plans    map[string][]Applied // by plan: its limits, without scopes
	accounts map[string][]Applied // by account, only where it overrides its plan
	pools    []Applied            // by name

	pins pins // above the limits' modes

	granted []string // accounts with grants
	prices  map[string][]ModelPrice
	uses    map[grantKey]grantUses
}

// Applied is a limit that a call meets, and the counter of it that it meets.
// State is kept under (account or pool, ID, Scope).
type Applied struct {
	Limit *Limit // points into the policy: not to be changed
	ID    string // Limit.ID()
	Pool  string // the pool's name; "" for a limit of the account
	Scope string // Limit.Scope of the call's labels

	Mode Mode // in force: that of Pin, else of Limit; "" for ModeEnforce
	Pin  *Pin // what holds the mode; nil: it is the limit's own. Not to be changed
}

// NewPolicy validates the parts and everything between them, and builds the
// policy of them. It copies what it is given and fills in what was left out:
// Burst (the rate's amount), WhenDown (closed), OnExpiry (give_back), TimeZone
// (UTC), AnchorDay (1); Per is sorted and rid of "account". The error joins one
// [FieldError] a fault, in order of path. The version must not be negative.
func NewPolicy(plans []Plan, pools []Pool, accounts []Account, version int64) (*Policy, error) {
	var f faults
	p := &Policy{
		Version:  version,
		Plans:    make(map[string]Plan, len(plans)),
		Pools:    make(map[string]Pool, len(pools)),
		Accounts: make(map[string]Account, len(accounts)),
		plans:    make(map[string][]Applied, len(plans)),
		accounts: make(map[string][]Applied),
	}
	if version < 0 {
		f.add("version", "%d is negative; versions start at 0", version)
	}
	count := func(field string, have, most int) bool {
		if have > most {
			f.add(field, "%d are stated, at most %d are accepted", have, most)
		}
		return have <= most
	}
	// Nothing is looked at beyond a bound, so that an error stays bounded too.
	if !count("plans", len(plans), MaxPlans) || !count("pools", len(pools), MaxPools) || !count("accounts", len(accounts), MaxAccounts) {
		return nil, f.err()
	}
	for _, plan := range plans {
		p.addPlan(&f, plan)
	}
	for _, pool := range pools {
		p.addPool(&f, pool)
	}
	for _, account := range accounts {
		p.addAccount(&f, account)
	}
	if len(f) > 0 {
		slices.SortStableFunc(f, func(a, b error) int {
			return strings.Compare(a.(*FieldError).Field, b.(*FieldError).Field)
		})
		return nil, f.err()
	}
	slices.SortFunc(p.pools, func(a, b Applied) int { return strings.Compare(a.Pool, b.Pool) })
	slices.Sort(p.granted)
	return p, nil
}

func (p *Policy) addPlan(f *faults, plan Plan) {
	path := "plans." + displayName(plan.Name)
	if _, twice := p.Plans[plan.Name]; twice {
		f.add(path, "the plan is stated twice; merge the two")
		return
	}
	f.under(path, plan.Validate())
	plan.Limits = completeLimits(plan.Limits)
	p.Plans[plan.Name] = plan
	p.plans[plan.Name] = resolve(plan.Limits)
}

func (p *Policy) addPool(f *faults, pool Pool) {
	path := "pools." + displayName(pool.Name)
	if _, twice := p.Pools[pool.Name]; twice {
		f.add(path, "the pool is stated twice; merge the two")
		return
	}
	f.under(path, pool.Validate())
	pool.Limit = pool.Limit.complete()
	p.Pools[pool.Name] = pool
	limit := pool.Limit
	p.pools = append(p.pools, Applied{Limit: &limit, ID: limit.ID(), Pool: pool.Name, Mode: limit.Mode})
}

func (p *Policy) addAccount(f *faults, account Account) {
	path := "accounts." + displayName(account.Name)
	if _, twice := p.Accounts[account.Name]; twice {
		f.add(path, "the account is stated twice; merge the two")
		return
	}
	f.under(path, account.Validate())
	if account.TimeZone == "" {
		account.TimeZone = "UTC"
	}
	if account.AnchorDay == 0 {
		account.AnchorDay = 1
	}
	account.Overrides = completeLimits(account.Overrides)
	account.Grants = slices.Clone(account.Grants)
	p.Accounts[account.Name] = account
	plan, known := p.Plans[account.Plan]
	if !known {
		if isName(account.Plan) {
			f.add(path+".plan", "there is no plan %s; state it under plans or name another", quoteShort(account.Plan))
		}
		return
	}
	resolved := p.plans[account.Plan]
	if len(account.Overrides) > 0 {
		limits := override(plan.Limits, account.Overrides)
		if len(limits) > MaxLimits {
			f.add(path+".limits", "the plan and the overrides make %d limits, at most %d are accepted", len(limits), MaxLimits)
			return
		}
		resolved = resolve(limits)
		p.accounts[account.Name] = resolved
	}
	if len(account.Grants) > 0 {
		checkGrants(f, path, account.Grants, resolved)
		p.granted = append(p.granted, account.Name)
	}
}

// displayName is a name as a path shows it, whatever it is made of.
func displayName(name string) string {
	if isName(name) || ValidateAccountName(name) == nil {
		return name
	}
	return quoteShort(name)
}

// complete returns a copy of the limit that shares nothing with it and has
// every default filled in.
func (l Limit) complete() Limit {
	l.Per = normalPer(l.Per)
	l.Match = cloneMatch(l.Match)
	l.Costs = slices.Clone(l.Costs)
	l.AlertAt = slices.Clone(l.AlertAt)
	l.KeepFor = maps.Clone(l.KeepFor)
	slices.Sort(l.AlertAt)
	for i, rule := range l.Costs {
		l.Costs[i].Match = cloneMatch(rule.Match)
	}
	if l.Kind.IsLevel() && l.Burst == 0 {
		l.Burst = l.Rate.Amount
	}
	if l.Mode == ModeEnforce {
		l.Mode = ""
	}
	if l.WhenDown == "" {
		l.WhenDown = DownClosed
	}
	if l.OnExpiry == "" {
		l.OnExpiry = ExpiryGiveBack
	}
	return l
}

func completeLimits(limits []Limit) []Limit {
	complete := make([]Limit, len(limits))
	for i, limit := range limits {
		complete[i] = limit.complete()
	}
	return complete
}

func cloneMatch(match map[string][]string) map[string][]string {
	clone := maps.Clone(match)
	for label, values := range match {
		clone[label] = slices.Clone(values)
	}
	return clone
}

// override returns the limits with those of the same name replaced where they
// stand, and the rest of the overrides at the end.
func override(limits, overrides []Limit) []Limit {
	merged := slices.Clone(limits)
	for _, limit := range overrides {
		i := slices.IndexFunc(merged, func(l Limit) bool { return l.Name == limit.Name })
		if i >= 0 {
			merged[i] = limit
		} else {
			merged = append(merged, limit)
		}
	}
	return merged
}

func resolve(limits []Limit) []Applied {
	resolved := make([]Applied, len(limits))
	for i := range limits {
		resolved[i] = Applied{Limit: &limits[i], ID: limits[i].ID(), Mode: limits[i].Mode}
	}
	return resolved
}

// Account returns the account of that name, or an [*UnknownAccountError].
func (p *Policy) Account(name string) (Account, error) {
	account, known := p.Accounts[name]
	if !known {
		return Account{}, &UnknownAccountError{Account: name}
	}
	return account, nil
}

// Limits returns every limit that calls of the account can meet, whatever
// their labels, without scopes: the plan's in their order with the account's
// overrides, then the pools by name. The error is an [*UnknownAccountError].
func (p *Policy) Limits(account string) ([]Applied, error) {
	own, err := p.resolved(account)
	if err != nil {
		return nil, err
	}
	limits := slices.Concat(own, p.pools)
	p.pin(account, limits)
	return limits, nil
}

// Applied returns the limits that a call of the account with these labels
// meets: the plan's in their order with the account's overrides, then the
// pools by name. It is empty when no limit matches. The error is an
// [*UnknownAccountError], or says which label is faulty ([ValidateLabels]).
func (p *Policy) Applied(account string, labels map[string]string) ([]Applied, error) {
	own, err := p.resolved(account)
	if err != nil {
		return nil, err
	}
	if err := ValidateLabels(labels); err != nil {
		return nil, err
	}
	applied := make([]Applied, 0, len(own)+len(p.pools))
	for _, limits := range [...][]Applied{own, p.pools} {
		for _, a := range limits {
			if a.Limit.Matches(labels) {
				a.Scope = a.Limit.Scope(labels)
				applied = append(applied, a)
			}
		}
	}
	p.pin(account, applied)
	return applied, nil
}

func (p *Policy) resolved(account string) ([]Applied, error) {
	if own, overrides := p.accounts[account]; overrides {
		return own, nil
	}
	known, ok := p.Accounts[account]
	if !ok {
		return nil, &UnknownAccountError{Account: account}
	}
	return p.plans[known.Plan], nil
}
