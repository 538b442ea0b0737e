package quota

import (
	"slices"
	"time"
)

// Allowance is what a quota allows in a period, as of an instant.
type Allowance struct {
	Max     Amount // all of it, at most MaxAmount
	Granted Amount // what grants add to the limit's own amount
}

// share is what a grant has for one period.
type share struct {
	grant *Grant
	has   Amount
	fixed bool // the grant has ended: what it covered stands
}

// adds says whether the grant adds to that counter.
func (g *Grant) adds(a *Applied) bool { return g.Limit == a.Limit.Name && g.Scope == a.Scope }

// Allowance returns what the account's quota allows in the period at an instant
// of it: the limit's own amount and what its grants have for the period. A
// grant has what it covered in other periods less. It has nothing until it is
// opened for the period, which [Policy.Settle] does once all periods before are
// settled: so a grant is never given twice. In the period in which it begins it
// is open at once. One that ended in the period keeps what it had covered.
func (p *Policy) Allowance(account Account, a Applied, period Period, at time.Time) Allowance {
	allowance := Allowance{Max: a.Limit.Max}
	if len(account.Grants) == 0 {
		return allowance
	}
	for _, s := range p.shares(account, a, period, at) {
		allowance.Granted = min(allowance.Granted+s.has, MaxAmount) // two amounts of 53 bits can't leave 64
	}
	allowance.Max = min(allowance.Max+allowance.Granted, MaxAmount)
	return allowance
}

// GrantsLeft returns, by name, what is left of each of the account's grants on
// one counter of a quota at an instant of the period, of which so much was used:
// of one that has not started all of it, of one that has ended nothing, and
// nothing either of one that is not counted yet, as for [Policy.Allowance].
func (p *Policy) GrantsLeft(account Account, a Applied, period Period, at time.Time, used Amount) map[string]Amount {
	left := make(map[string]Amount)
	for i := range account.Grants {
		if g := &account.Grants[i]; g.adds(&a) {
			left[g.Name] = 0
			if !g.Started(at) {
				left[g.Name] = g.Amount
			}
		}
	}
	shares := p.shares(account, a, period, at)
	for i, amount := range covered(a.Limit.Max, shares, used) {
		if s := &shares[i]; !s.fixed {
			left[s.grant.Name] = s.has - amount
		}
	}
	return left
}

// Measure returns what the account's quota allows in the period, or what it
// allowed in one that has passed, to hold its use against. It is not known while
// what a grant has for the period is not settled, nor of a period that is no
// longer kept: what is measured then would be too small an amount.
func (p *Policy) Measure(account Account, a Applied, period Period, at time.Time) (amount Amount, known bool) {
	passed := !at.Before(period.End)
	if passed {
		at = period.End.Add(-time.Microsecond)
	}
	if at.Before(period.Start) {
		at = period.Start // the period runs by a better clock
	}
	own := a.Limit.Max
	var granted Amount
	for i := range account.Grants {
		g := &account.Grants[i]
		if !g.adds(&a) || !g.Started(at) || !g.Until.IsZero() && !g.Until.After(period.Start) {
			continue
		}
		uses := p.usesOf(account.Name, g.Name)
		use := uses.of(a.ID, period.Key)
		var has Amount
		switch {
		case use != nil && use.State == UseOpen && !g.Ended(at):
			has = g.Amount - uses.outside(a.ID, period.Key, g.Amount)
		case use != nil && use.State != UseOpen && g.Ended(at):
			has = min(use.Covered, g.Amount)
		case use != nil && use.State != UseOpen && passed:
			has = g.Amount - uses.earlier(use.Start, g.Amount)
		case uses.none() && !g.Ended(at) && !g.From.Before(period.Start):
			has = g.Amount
		case !passed && uses.outside(a.ID, period.Key, g.Amount) == g.Amount:
			// It is used up.
		case use == nil && uses.earlier(period.Start, g.Amount) == g.Amount:
			// It was used up before.
		default:
			return 0, false
		}
		if passed && use != nil {
			own = use.Own
		}
		granted = min(granted+has, MaxAmount)
	}
	return min(own+granted, MaxAmount), true
}

// shares returns what each grant of the quota has for the period.
func (p *Policy) shares(account Account, a Applied, period Period, at time.Time) []share {
	var shares []share
	for i := range account.Grants {
		g := &account.Grants[i]
		if !g.adds(&a) || !g.Started(at) {
			continue
		}
		uses := p.usesOf(account.Name, g.Name)
		use := uses.of(a.ID, period.Key)
		switch {
		case g.Ended(at):
			if use != nil && use.State != UseOpen && use.Covered > 0 && g.Until.After(period.Start) {
				shares = append(shares, share{g, min(use.Covered, g.Amount), true})
			}
		case use != nil && use.State == UseOpen, uses.none() && !g.From.Before(period.Start):
			if has := g.Amount - uses.outside(a.ID, period.Key, g.Amount); has > 0 {
				shares = append(shares, share{grant: g, has: has})
			}
		}
	}
	sortShares(shares)
	return shares
}

func sortShares(shares []share) {
	slices.SortFunc(shares, func(a, b share) int { return a.grant.Compare(*b.grant) })
}

// covered says how much of the use of a period each share covers, in the order
// that [Grant] states.
func covered(own Amount, shares []share, used Amount) []Amount {
	amounts := make([]Amount, len(shares))
	take := func(has Amount) Amount {
		taken := min(max(used, 0), has)
		used -= taken
		return taken
	}
	// What grants that have ended covered is theirs for good.
	for i := range shares {
		if shares[i].fixed {
			amounts[i] = shares[i].has
			used -= shares[i].has
		}
	}
	for i := range shares {
		if !shares[i].fixed && shares[i].grant.Priority < 0 {
			amounts[i] = take(shares[i].has)
		}
	}
	take(own)
	for i := range shares {
		if !shares[i].fixed && shares[i].grant.Priority >= 0 {
			amounts[i] = take(shares[i].has)
		}
	}
	return amounts
}
