package quota

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Bounds of what is kept of a grant's uses.
const (
	// KeptSpan is for how long after its end a period's use can still change what
	// grants covered of it. It is longer than the longest month, so that a
	// correction of the month before reaches them.
	KeptSpan = 40 * 24 * time.Hour
	// keptUses is how many periods are kept one by one however old they are.
	keptUses = 3
)

// UseState says how final a [GrantUse] is.
type UseState string

// The states of a GrantUse.
const (
	UseOpen    UseState = "open"    // the grant adds to the period, which runs
	UseWaiting UseState = "waiting" // it is worked out, and open reservations may still change it
	UseSettled UseState = "settled" // it is worked out; only a change in the ledger changes it
)

// GrantUse is a period in which a grant adds to its quota, or what it covered of
// the period's use. It says by itself what it was worked out from, so that
// another plan, unit, zone or anchor day changes nothing about it.
//
// One without a Period is what was covered in all periods before the others
// together: of it only Covered says anything.
type GrantUse struct {
	Account string
	Grant   string // its name

	Limit      string // Limit.ID of the quota that counted the use
	Meter      Meter  // of that quota
	Period     string // Period.Key
	Start, End time.Time
	Own        Amount // the limit's own amount in the period
	Covered    Amount // 0 while it is open
	State      UseState
}

// Validate returns the faults of the use as joined [FieldError] values.
func (u *GrantUse) Validate() error {
	var f faults
	for _, amount := range []struct {
		field string
		is    Amount
	}{{"covered", u.Covered}, {"own", u.Own}} {
		if err := amount.is.Check(); err != nil {
			f.add(amount.field, "%v", err)
		}
	}
	if u.Period == "" {
		return f.err()
	}
	if _, _, _, _, err := ParsePeriodKey(u.Period); err != nil {
		f.add("period", "%v", err)
	}
	if !u.Start.Before(u.End) {
		f.add("end", "%s is not after the start, %s", u.End.UTC().Format(time.RFC3339), u.Start.UTC().Format(time.RFC3339))
	}
	if u.State != UseOpen && u.State != UseWaiting && u.State != UseSettled {
		f.add("state", "%s is not one of open, waiting and settled", quoteShort(string(u.State)))
	}
	return f.err()
}

func (u *GrantUse) name() string {
	return fmt.Sprintf("accounts.%s.grants.%s.uses.%s", displayName(u.Account), displayName(u.Grant), displayName(u.Period))
}

// period of the use.
func (u *GrantUse) period() Period { return Period{Key: u.Period, Start: u.Start, End: u.End} }

// ofKey says whether the use is of that counter's period.
func (u *GrantUse) ofKey(limit, period string) bool { return u.Limit == limit && u.Period == period }

// Equal says whether two uses say the same, whatever zones their instants are
// shown in.
func (u GrantUse) Equal(other GrantUse) bool {
	if !u.Start.Equal(other.Start) || !u.End.Equal(other.End) {
		return false
	}
	other.Start, other.End = u.Start, u.End
	return u == other
}

// Compare is the order in which uses are kept: by account, grant, start of the
// period, limit and period.
func (u GrantUse) Compare(other GrantUse) int {
	return cmp.Or(cmp.Compare(u.Account, other.Account), cmp.Compare(u.Grant, other.Grant), u.Start.Compare(other.Start),
		cmp.Compare(u.Limit, other.Limit), cmp.Compare(u.Period, other.Period))
}

// newUse opens a period for a grant.
func newUse(account, grant string, a Applied, period Period) GrantUse {
	return GrantUse{
		Account: account, Grant: grant, Limit: a.ID, Meter: a.Limit.Meter, Period: period.Key,
		Start: period.Start.UTC(), End: period.End.UTC(), Own: a.Limit.Max, State: UseOpen,
	}
}

type grantKey struct{ account, grant string }

// grantUses is what one grant covered: of the newest periods one by one, in the
// order of their starts, and of all before them together. At most one is open.
type grantUses struct {
	before Amount
	newer  []GrantUse
}

func (u grantUses) none() bool { return u.before == 0 && len(u.newer) == 0 }

// of returns the use of a counter's period, nil when there is none.
func (u grantUses) of(limit, period string) *GrantUse {
	for i := range u.newer {
		if u.newer[i].ofKey(limit, period) {
			return &u.newer[i]
		}
	}
	return nil
}

// open returns the period to which the grant adds, nil when there is none.
func (u grantUses) open() *GrantUse {
	for i := range u.newer {
		if u.newer[i].State == UseOpen {
			return &u.newer[i]
		}
	}
	return nil
}

// through is up to when periods were looked at.
func (u grantUses) through() time.Time {
	var end time.Time
	for i := range u.newer {
		if u.newer[i].End.After(end) {
			end = u.newer[i].End
		}
	}
	return end
}

// outside is what was covered of the periods other than that one, at most that
// much.
func (u grantUses) outside(limit, period string, most Amount) Amount {
	covered := min(u.before, most)
	for i := range u.newer {
		if !u.newer[i].ofKey(limit, period) {
			covered += min(u.newer[i].Covered, most-covered)
		}
	}
	return covered
}

// earlier is what was covered of periods that began before, at most that much.
func (u grantUses) earlier(start time.Time, most Amount) Amount {
	covered := min(u.before, most)
	for i := range u.newer {
		if u.newer[i].Start.Before(start) {
			covered += min(u.newer[i].Covered, most-covered)
		}
	}
	return covered
}

// with returns the uses with one of them set.
func (u grantUses) with(use GrantUse) grantUses {
	u.newer = slices.Clone(u.newer)
	u.newer = slices.DeleteFunc(u.newer, func(k GrantUse) bool { return k.ofKey(use.Limit, use.Period) })
	i, _ := slices.BinarySearchFunc(u.newer, use, GrantUse.Compare)
	u.newer = slices.Insert(u.newer, i, use)
	return u
}

// folded puts settled periods that ended before the instant together; the newest
// ones stay.
func (u grantUses) folded(before time.Time) grantUses {
	kept := u.newer[:0:0]
	for i, use := range u.newer {
		if use.State == UseSettled && use.End.Before(before) && i < len(u.newer)-keptUses {
			u.before += min(use.Covered, MaxAmount-u.before)
		} else {
			kept = append(kept, use)
		}
	}
	u.newer = kept
	return u
}

// rows is how the uses are kept.
func (u grantUses) rows(key grantKey) []GrantUse {
	rows := make([]GrantUse, 0, len(u.newer)+1)
	if u.before > 0 {
		rows = append(rows, GrantUse{Account: key.account, Grant: key.grant, Covered: u.before})
	}
	return append(rows, u.newer...)
}

// usesByGrant sorts uses by grant. Those of grants that the policy does not have
// are left out.
func (p *Policy) usesByGrant(f *faults, uses []GrantUse) map[grantKey]grantUses {
	sorted := make(map[grantKey]grantUses)
	for _, use := range uses {
		account, known := p.Accounts[use.Account]
		i := slices.IndexFunc(account.Grants, func(g Grant) bool { return g.Name == use.Grant })
		if !known || i < 0 {
			continue
		}
		if use.Period != "" && use.Limit == "" {
			use = p.explained(account, &account.Grants[i], use)
		}
		if err := use.Validate(); err != nil {
			f.under(use.name(), err)
			continue
		}
		key := grantKey{use.Account, use.Grant}
		of := sorted[key]
		if use.Period == "" {
			of.before = use.Covered
		} else {
			use.Start, use.End = use.Start.UTC(), use.End.UTC()
			of.newer = append(of.newer, use)
		}
		sorted[key] = of
	}
	for _, of := range sorted {
		slices.SortFunc(of.newer, GrantUse.Compare)
	}
	return sorted
}

// explained fills in what the first layout of the store did not keep, from the
// account's calendar and plan as they are now.
func (p *Policy) explained(account Account, g *Grant, use GrantUse) GrantUse {
	use.State = UseSettled
	if limit, known := p.quotaOf(account.Name, g); known {
		use.Limit, use.Meter, use.Own = limit.ID, limit.Limit.Meter, limit.Limit.Max
	}
	period, err := PeriodFromKey(use.Period, account.TimeZone, account.AnchorDay)
	if err != nil {
		unit, year, month, day, _ := ParsePeriodKey(use.Period)
		period = Account{AnchorDay: day}.PeriodAt(unit, time.Date(year, month, day, 0, 0, 0, 0, time.UTC))
	}
	use.Start, use.End = period.Start, period.End
	return use
}

// quotaOf returns the quota that the grant adds to, with the grant's scope.
func (p *Policy) quotaOf(account string, g *Grant) (Applied, bool) {
	limits, err := p.resolved(account)
	if err != nil {
		return Applied{}, false
	}
	i := slices.IndexFunc(limits, func(a Applied) bool { return a.Limit.Name == g.Limit })
	if i < 0 {
		return Applied{}, false
	}
	limit := limits[i]
	limit.Scope = g.Scope
	return limit, true
}

func (p *Policy) usesOf(account, grant string) grantUses { return p.uses[grantKey{account, grant}] }

// GrantUses returns what the policy knows of a grant's uses, in order.
func (p *Policy) GrantUses(account, grant string) []GrantUse {
	return p.usesOf(account, grant).rows(grantKey{account, grant})
}

// FirstUses returns the periods in which grants of the account begin. A store
// keeps them from the moment that it has the grant, so that what the grant adds
// is accounted for however the quota or the calendar change.
func (p *Policy) FirstUses(account string) []GrantUse {
	known := p.Accounts[account]
	var uses []GrantUse
	for i := range known.Grants {
		g := &known.Grants[i]
		if limit, ok := p.quotaOf(account, g); ok && !g.From.IsZero() {
			uses = append(uses, newUse(account, g.Name, limit, known.PeriodAt(limit.Limit.Period, g.From)))
		}
	}
	return uses
}

// SameGrant says whether what was worked out for a grant by one policy holds for
// the other: in both the grant adds the same to the same counter of the same
// amount, periods begin at the same instants, and the same is known of its uses.
func SameGrant(a, b *Policy, account, name string) bool {
	of := func(p *Policy) (known Account, grant Grant, limit Applied, ok bool) {
		known = p.Accounts[account]
		i := slices.IndexFunc(known.Grants, func(g Grant) bool { return g.Name == name })
		if i < 0 {
			return known, grant, limit, false
		}
		grant = known.Grants[i]
		limit, ok = p.quotaOf(account, &grant)
		return known, grant, limit, ok
	}
	accountA, grantA, limitA, okA := of(a)
	accountB, grantB, limitB, okB := of(b)
	grantA.Reason = grantB.Reason // for people only
	return okA && okB && grantA.Equal(grantB) &&
		accountA.TimeZone == accountB.TimeZone && accountA.AnchorDay == accountB.AnchorDay &&
		limitA.ID == limitB.ID && limitA.Limit.Max == limitB.Limit.Max &&
		slices.EqualFunc(a.GrantUses(account, name), b.GrantUses(account, name), GrantUse.Equal)
}
