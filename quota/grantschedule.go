package quota

import (
	"slices"
	"sort"
	"time"
)

// GrantSchedule says when there is something to settle, so that nobody has to
// look at every grant all the time.
type GrantSchedule struct {
	due     []dueAccount // by instant
	waiting []string
}

type dueAccount struct {
	account string
	at      time.Time
}

// Granted lists the accounts that have grants, in order; it is to be read only.
func (p *Policy) Granted() []string { return p.granted }

// GrantSchedule works out the schedule of the policy, for now and later.
func (p *Policy) GrantSchedule(now time.Time) *GrantSchedule {
	s := &GrantSchedule{}
	look := scheduler{policy: p, now: now, current: make(map[calendar]Period)}
	for _, name := range p.granted {
		account := p.Accounts[name]
		var first time.Time
		waits := false
		for i := range account.Grants {
			g := &account.Grants[i]
			at := look.next(account, g)
			if !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
			for _, use := range p.usesOf(name, g.Name).newer {
				waits = waits || use.State == UseWaiting
			}
		}
		if !first.IsZero() {
			s.due = append(s.due, dueAccount{name, first})
		}
		if waits {
			s.waiting = append(s.waiting, name)
		}
	}
	slices.SortStableFunc(s.due, func(a, b dueAccount) int { return a.at.Compare(b.at) })
	return s
}

// Due lists the accounts of which something is to be settled or opened by now.
func (s *GrantSchedule) Due(now time.Time) []string {
	n := sort.Search(len(s.due), func(i int) bool { return s.due[i].at.After(now) })
	names := make([]string, n)
	for i := range names {
		names[i] = s.due[i].account
	}
	return names
}

// Waiting lists the accounts of which something was open at the last look; it is
// to be read only.
func (s *GrantSchedule) Waiting() []string { return s.waiting }

// calendar is what periods depend on.
type calendar struct {
	unit   PeriodUnit
	zone   string
	anchor int
}

type scheduler struct {
	policy  *Policy
	now     time.Time
	current map[calendar]Period // few, however many accounts there are
}

// next is when [Policy.Settle] has something to do for the grant: zero for
// never, now or earlier for at once.
func (s *scheduler) next(account Account, g *Grant) time.Time {
	limit, known := s.policy.quotaOf(account.Name, g)
	if !known || g.From.IsZero() {
		return time.Time{}
	}
	if !g.Started(s.now) {
		return g.From
	}
	of := calendar{limit.Limit.Period, account.TimeZone, account.AnchorDay}
	current, known := s.current[of]
	if !known {
		current = account.PeriodAt(of.unit, s.now)
		s.current[of] = current
	}
	uses := s.policy.usesOf(account.Name, g.Name)
	if open := uses.open(); open != nil {
		switch {
		case !open.Equal(newUse(account.Name, g.Name, limit, current)):
			return s.now
		case !g.Until.IsZero() && g.Until.Before(open.End):
			return g.Until
		}
		return open.End
	}
	if len(uses.newer) > 0 {
		through := uses.through()
		if through.After(s.now) {
			through = s.now
		}
		if g.Ended(through) {
			return time.Time{}
		}
	}
	if g.Amount == uses.outside(limit.ID, current.Key, g.Amount) {
		return time.Time{} // it is used up
	}
	return s.now
}
