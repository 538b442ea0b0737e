package quota

import (
	"slices"
	"time"
)

// Settling is a period whose use is to be covered: one that has ended, that the
// quota has left for another calendar or unit, or in which the grant has ended.
type Settling struct {
	Account string
	Limit   string // Limit.ID, as Scope and Meter of the counter
	Scope   string
	Meter   Meter
	Period  Period
	Over    bool // nothing is reserved in the period any more
}

// Used is what was used of a period: what was spent and, of one that is over,
// what open reservations still hold, so that nothing is given twice.
type Used struct {
	Amount Amount
	Open   bool // some of it is not in the ledger yet, or may never be
}

// Again says which settled periods are looked at again.
type Again int

// What is looked at again.
const (
	AgainNothing Again = iota
	AgainWaiting       // those of which something was open at the last look
	AgainAll           // all that are kept: the ledger may have changed
)

// Settle works out what the account's grants covered of periods that are over by
// now, or in which the grant has ended, and opens the period that runs. It
// returns all uses, to be kept in place of those before, of each grant of which
// something is new. Of each quota the earlier period goes first, since the next
// depends on it, at most rounds of them. Uses of periods that ended longer than
// [KeptSpan] ago, but the newest, are put together.
//
// now is the engine's clock: by it reservations are made in periods, so one that
// has not ended by it is never settled. used returns the use of each period that
// it is asked for, in order. What was worked out before its error is returned
// with it.
func (p *Policy) Settle(account string, now time.Time, again Again, rounds int, used func([]Settling) ([]Used, error)) ([]GrantUse, error) {
	s := settler{policy: p, account: p.Accounts[account], now: now}
	s.collect(again)
	var failed error
	for range rounds {
		due := s.due()
		if len(due) == 0 {
			break
		}
		asked := make([]Settling, len(due))
		for i, g := range due {
			asked[i] = Settling{
				Account: account, Limit: g.next.Limit, Scope: g.limit.Scope, Meter: g.next.Meter, Period: g.next.period(), Over: s.over(g),
			}
		}
		var amounts []Used
		if amounts, failed = used(asked); failed != nil {
			break
		}
		for i, g := range due {
			s.settle(g, amounts[i])
		}
	}
	var found []GrantUse
	for _, g := range s.grants {
		if g.changed {
			found = append(found, g.uses.folded(now.Add(-KeptSpan)).rows(grantKey{account, g.grant.Name})...)
		}
	}
	return found, failed
}

// settler adds what it works out to what the policy knows of one account.
type settler struct {
	policy  *Policy
	account Account
	now     time.Time
	grants  []*settledGrant
}

// settledGrant is a grant and the period of it that comes next.
type settledGrant struct {
	grant   *Grant
	limit   Applied
	current Period // of the limit, as of now
	uses    grantUses
	changed bool
	again   []GrantUse // to be looked at again, the earliest first
	next    *GrantUse  // nil: nothing is to be settled
}

func (s *settler) collect(again Again) {
	for i := range s.account.Grants {
		g := &settledGrant{grant: &s.account.Grants[i]}
		limit, known := s.policy.quotaOf(s.account.Name, g.grant)
		if !known || g.grant.From.IsZero() {
			continue
		}
		g.limit, g.current = limit, s.account.PeriodAt(limit.Limit.Period, s.now)
		g.uses = s.policy.usesOf(s.account.Name, g.grant.Name)
		for _, use := range g.uses.newer {
			// Where the grant ended first, later use is none of its.
			if g.endsIn(&use) {
				continue
			}
			if again == AgainAll && use.State != UseOpen || again == AgainWaiting && use.State == UseWaiting {
				g.again = append(g.again, use)
			}
		}
		s.grants = append(s.grants, g)
	}
}

// endsIn says whether the grant ends before the period does.
func (g *settledGrant) endsIn(use *GrantUse) bool {
	return !g.grant.Until.IsZero() && g.grant.Until.Before(use.End)
}

// ends is the end of the period or of the grant, whichever is first.
func (g *settledGrant) ends(use *GrantUse) time.Time {
	if g.endsIn(use) {
		return g.grant.Until
	}
	return use.End
}

func (g *settledGrant) isCurrent(use *GrantUse) bool { return use.ofKey(g.limit.ID, g.current.Key) }

// over says whether nobody reserves in the grant's next period any more.
func (s *settler) over(g *settledGrant) bool { return !g.isCurrent(g.next) }

// step finds the grant's next period. On the way it opens the one that runs.
func (s *settler) step(g *settledGrant) {
	g.next = nil
	if len(g.again) > 0 {
		g.next = &g.again[0]
		return
	}
	if !g.grant.Started(s.now) {
		return
	}
	if open := g.uses.open(); open != nil {
		if !g.isCurrent(open) {
			g.next = open
			return
		}
		// The amount that counts is the last one in the period.
		as := newUse(s.account.Name, g.grant.Name, g.limit, g.current)
		if !open.Equal(as) {
			g.set(as)
		}
		if g.grant.Ended(s.now) {
			g.next = g.uses.open()
		}
		return
	}
	through := g.grant.From
	if len(g.uses.newer) > 0 {
		// A period that the quota has left may end later.
		if through = g.uses.through(); through.After(s.now) {
			through = s.now
		}
	}
	if g.grant.Ended(through) {
		return
	}
	period := s.account.PeriodAt(g.limit.Limit.Period, through)
	for period.Key != g.current.Key && g.uses.of(g.limit.ID, period.Key) != nil {
		period = s.account.PeriodAt(g.limit.Limit.Period, period.End)
	}
	if g.grant.Amount == g.uses.outside(g.limit.ID, period.Key, g.grant.Amount) || g.grant.Ended(period.Start) {
		return // it is used up, or has ended before
	}
	use := newUse(s.account.Name, g.grant.Name, g.limit, period)
	if period.Key != g.current.Key || g.grant.Ended(s.now) {
		g.next = &use
		return
	}
	g.set(use)
}

func (g *settledGrant) set(use GrantUse) { g.uses, g.changed = g.uses.with(use), true }

// due returns the grants whose next period is to be settled: of each counter
// those of the earliest period, the one that ends first before the others.
func (s *settler) due() []*settledGrant {
	type counter struct{ limit, scope string }
	first := make(map[counter]*GrantUse)
	var due []*settledGrant
	for _, g := range s.grants {
		s.step(g)
		if g.next == nil {
			continue
		}
		due = append(due, g)
		of := counter{g.grant.Limit, g.grant.Scope}
		if known := first[of]; known == nil || g.next.Start.Before(known.Start) {
			first[of] = g.next
		}
	}
	due = slices.DeleteFunc(due, func(g *settledGrant) bool {
		earliest := first[counter{g.grant.Limit, g.grant.Scope}]
		return !g.next.ofKey(earliest.Limit, earliest.Period)
	})
	slices.SortStableFunc(due, func(a, b *settledGrant) int { return a.ends(a.next).Compare(b.ends(b.next)) })
	return due
}

// settle notes what the grant covered of the use of its next period.
func (s *settler) settle(g *settledGrant, used Used) {
	use := *g.next
	use.Covered, use.State = 0, UseSettled
	if used.Open && s.over(g) && !g.endsIn(&use) {
		use.State = UseWaiting
	}
	shares := s.shares(g)
	for i, amount := range covered(use.Own, shares, used.Amount) {
		if shares[i].grant == g.grant {
			use.Covered = amount
		}
	}
	if known := g.uses.of(use.Limit, use.Period); known == nil || !known.Equal(use) {
		g.set(use)
	}
	if len(g.again) > 0 {
		g.again = g.again[1:]
	}
}

// shares returns what each grant of the counter has for the next period of one,
// as of the last instant of it, when that one had not ended.
func (s *settler) shares(g *settledGrant) []share {
	period := g.next
	at := g.ends(period)
	if at.After(s.now) {
		at = s.now // the quota left the period before its end
	}
	at = at.Add(-1)
	var shares []share
	for _, other := range s.grants {
		if other.limit.Limit.Name != g.limit.Limit.Name || other.limit.Scope != g.limit.Scope || !other.grant.Started(at) {
			continue
		}
		use := other.uses.of(period.Limit, period.Period)
		switch {
		case other.grant.Ended(at):
			if use != nil && use.State != UseOpen && use.Covered > 0 && other.grant.Until.After(period.Start) {
				shares = append(shares, share{other.grant, min(use.Covered, other.grant.Amount), true})
			}
		case use != nil, other.next != nil && other.next.ofKey(period.Limit, period.Period):
			if has := other.grant.Amount - other.uses.outside(period.Limit, period.Period, other.grant.Amount); has > 0 {
				shares = append(shares, share{grant: other.grant, has: has})
			}
		}
	}
	sortShares(shares)
	return shares
}
