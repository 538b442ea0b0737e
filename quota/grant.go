package quota

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of an account's grants and of a quota's alerts.
const (
	MaxGrants        = 256 // grants of one account
	MaxGrantPriority = 100
	MaxAlerts        = 16   // thresholds of one quota
	MaxAlertPercent  = 1000 // of the quota's amount

	maxGrantTextBytes = 1024 // of a grant's scope and reason
)

// LateSpan is how long after its end a period's use may still change what grants
// covered of it: the longest lease and an hour.
const LateSpan = 25 * time.Hour

// Grant adds to what an account's quota allows, for a while: a top-up, a
// promotion, a goodwill credit. What one period leaves of it is there in the
// next, until it ends.
//
// A quota's use is covered in this order: grants of a negative priority, then
// the limit's own amount, then the other grants; among grants the lower
// priority, then the earlier end, then the name.
type Grant struct {
	Name     string // unique in its account; as Limit.Name
	Limit    string // name of the quota
	Scope    string // which counter, as Limit.Scope gives it; "" for the whole account
	Amount   Amount // 1 to MaxAmount
	Money    bool   // Amount is in nano-USD, as the meter cost counts, and no other
	From     time.Time
	Until    time.Time // zero: it does not end
	Priority int       // -MaxGrantPriority to MaxGrantPriority
	Reason   string    // to 1,024 bytes
}

// GrantUse is what a grant covered of one period's use, once the period or the
// grant has ended.
type GrantUse struct {
	Account string
	Grant   string // its name
	Period  string // Period.Key; "" for all periods before the others together
	Covered Amount
}

// Equal says whether the two are the same grant, whatever zones their instants
// are shown in.
func (g Grant) Equal(other Grant) bool {
	if !g.From.Equal(other.From) || !g.Until.Equal(other.Until) {
		return false
	}
	other.From, other.Until = g.From, g.Until
	return g == other
}

// Started says whether the grant counts from that instant or an earlier one.
func (g *Grant) Started(at time.Time) bool { return !at.Before(g.From) }

// Ended says whether the grant has ended.
func (g *Grant) Ended(at time.Time) bool { return !g.Until.IsZero() && !at.Before(g.Until) }

// Compare is the order in which grants cover a quota's use.
func (g Grant) Compare(other Grant) int {
	end := func(g Grant) time.Time {
		if g.Until.IsZero() {
			return time.Unix(1<<40, 0)
		}
		return g.Until
	}
	return cmp.Or(cmp.Compare(g.Priority, other.Priority), end(g).Compare(end(other)), cmp.Compare(g.Name, other.Name))
}

// Validate returns the faults of the grant as joined [FieldError] values, nil
// when it has none. Whether its quota exists, [NewPolicy] checks.
func (g Grant) Validate() error {
	var f faults
	if p := nameProblem(g.Name); p != "" {
		f.add("name", "%s", p)
	}
	if p := nameProblem(g.Limit); p != "" {
		f.add("limit", "%s", p)
	}
	if p := positiveProblem(g.Amount); p != "" {
		f.add("amount", "%s", p)
	}
	if g.Priority < -MaxGrantPriority || g.Priority > MaxGrantPriority {
		f.add("priority", "%d is not between %d and %d; below 0 goes before the quota's own amount", g.Priority, -MaxGrantPriority, MaxGrantPriority)
	}
	for _, instant := range []struct {
		field string
		at    time.Time
	}{{"from", g.From}, {"until", g.Until}} {
		if !instant.at.IsZero() && (instant.at.Year() < 1970 || instant.at.Year() > 9998) {
			f.add(instant.field, "%s is not between the years 1970 and 9998", instant.at.Format(time.RFC3339))
		}
		if p := microsecondProblem(instant.at); p != "" {
			f.add(instant.field, "%s", p)
		}
	}
	if !g.Until.IsZero() && !g.Until.After(g.From) {
		f.add("until", "%s is not after from, %s", g.Until.UTC().Format(time.RFC3339), g.From.UTC().Format(time.RFC3339))
	}
	for _, text := range []struct{ field, text string }{{"scope", g.Scope}, {"reason", g.Reason}} {
		if p := freeTextProblem(text.text); p != "" {
			f.add(text.field, "%s", p)
		}
	}
	return f.err()
}

// microsecondProblem refuses what a store would cut off.
func microsecondProblem(at time.Time) string {
	if at.Nanosecond()%int(time.Microsecond) == 0 {
		return ""
	}
	return fmt.Sprintf("%s has more than six decimals of a second; write fewer", at.UTC().Format(time.RFC3339Nano))
}

func freeTextProblem(text string) string {
	switch {
	case len(text) > maxGrantTextBytes:
		return fmt.Sprintf("it has %d bytes, at most %d are accepted; shorten it", len(text), maxGrantTextBytes)
	case !utf8.ValidString(text):
		return "it is not valid UTF-8; encode it as UTF-8"
	case slices.ContainsFunc([]rune(text), unicode.IsControl):
		return "it contains a control character; remove it"
	}
	return ""
}

func validateGrants(f *faults, grants []Grant) {
	if len(grants) > MaxGrants {
		f.add("grants", "%d grants are stated, at most %d are accepted; remove those that have ended", len(grants), MaxGrants)
		return
	}
	validateNamed(f, "grants", "grant of an account", grants, func(g Grant) string { return g.Name }, Grant.Validate)
}

// checkGrants checks each grant against the limits that the account has.
func checkGrants(f *faults, path string, grants []Grant, limits []Applied) {
	for _, grant := range grants {
		at := path + ".grants." + grant.Name + ".limit"
		i := slices.IndexFunc(limits, func(a Applied) bool { return a.Limit.Name == grant.Limit })
		if i < 0 || limits[i].Limit.Kind != KindQuota {
			f.add(at, "the account has no quota %s; name one of its quotas, or remove the grant", quoteShort(grant.Limit))
			continue
		}
		limit := limits[i].Limit
		if grant.Money != (limit.Meter == MeterCost) {
			want := "write the amount without $"
			if limit.Meter == MeterCost {
				want = "write the amount with $, as in $50"
			}
			f.add(path+".grants."+grant.Name+".amount", "the quota %s counts %s; %s", quoteShort(limit.Name), limit.Meter, want)
		}
		if err := limit.CheckScope(grant.Scope); err != nil {
			f.add(path+".grants."+grant.Name+".scope", "%v", err)
		}
	}
}

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

// Allowance returns what the account's quota allows in the period at an instant
// of it: the limit's own amount and what its grants have for the period. A
// grant has what it covered in other periods less. It has nothing yet while
// what it covered in the period before is not known ([Policy.Settle]): so a
// quota is never given twice. One that ended in the period keeps what it had
// covered.
func (p *Policy) Allowance(account Account, a Applied, period Period, at time.Time) Allowance {
	allowance := Allowance{Max: a.Limit.Max}
	if len(account.Grants) == 0 {
		return allowance
	}
	for _, s := range shares(account, a, period, at, p.usesOf) {
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
		if g := &account.Grants[i]; g.Limit == a.Limit.Name && g.Scope == a.Scope {
			left[g.Name] = 0
			if !g.Started(at) {
				left[g.Name] = g.Amount
			}
		}
	}
	shares := shares(account, a, period, at, p.usesOf)
	for i, amount := range covered(a.Limit.Max, shares, used) {
		if s := &shares[i]; !s.fixed {
			left[s.grant.Name] = s.has - amount
		}
	}
	return left
}

// shares returns what each grant of the quota has for the period.
func shares(account Account, a Applied, period Period, at time.Time, usesOf func(grantKey) grantUses) []share {
	var shares []share
	for i := range account.Grants {
		g := &account.Grants[i]
		if g.Limit != a.Limit.Name || g.Scope != a.Scope || !g.Started(at) || !g.From.Before(period.End) {
			continue
		}
		uses := usesOf(grantKey{account.Name, g.Name})
		if g.Ended(at) {
			if covered := uses.in(period.Key); g.Until.After(period.Start) && covered > 0 {
				shares = append(shares, share{g, min(covered, g.Amount), true})
			}
			continue
		}
		if g.From.Before(period.Start) {
			before := account.PeriodAt(a.Limit.Period, period.Start.Add(-1))
			if uses.newest() < before.Key {
				continue
			}
		}
		if has := g.Amount - uses.outside(period.Key, g.Amount); has > 0 {
			shares = append(shares, share{grant: g, has: has})
		}
	}
	slices.SortFunc(shares, func(a, b share) int { return a.grant.Compare(*b.grant) })
	return shares
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

type grantKey struct{ account, grant string }

// grantUses is what one grant covered: of the newest periods, the oldest first,
// and of all before them together. Keys of one unit are in the order of time.
type grantUses struct {
	before Amount
	newer  []periodUse
}

type periodUse struct {
	period  string // Period.Key
	covered Amount
}

// newest is the last period whose use is known; "" for none.
func (u grantUses) newest() string {
	if len(u.newer) == 0 {
		return ""
	}
	return u.newer[len(u.newer)-1].period
}

func (u grantUses) in(period string) Amount {
	for _, use := range u.newer {
		if use.period == period {
			return use.covered
		}
	}
	return 0
}

// outside is what was covered of other periods, at most that much.
func (u grantUses) outside(period string, most Amount) Amount {
	covered := min(u.before, most)
	for _, use := range u.newer {
		if use.period != period {
			covered += min(use.covered, most-covered)
		}
	}
	return covered
}

// with returns the uses with that of one period set.
func (u grantUses) with(period string, covered Amount) grantUses {
	u.newer = slices.Clone(u.newer)
	i, known := slices.BinarySearchFunc(u.newer, period, func(use periodUse, period string) int { return cmp.Compare(use.period, period) })
	if !known {
		u.newer = slices.Insert(u.newer, i, periodUse{period: period})
	}
	u.newer[i].covered = covered
	return u
}

// folded puts the periods before the one together; the newest stays.
func (u grantUses) folded(before string) grantUses {
	for len(u.newer) > 1 && u.newer[0].period < before {
		u.before += min(u.newer[0].covered, MaxAmount-u.before)
		u.newer = u.newer[1:]
	}
	return u
}

// rows is how the uses are kept.
func (u grantUses) rows(key grantKey) []GrantUse {
	rows := make([]GrantUse, 0, len(u.newer)+1)
	if u.before > 0 {
		rows = append(rows, GrantUse{Account: key.account, Grant: key.grant, Covered: u.before})
	}
	for _, use := range u.newer {
		rows = append(rows, GrantUse{Account: key.account, Grant: key.grant, Period: use.period, Covered: use.covered})
	}
	return rows
}

func (p *Policy) usesOf(key grantKey) grantUses { return p.uses[key] }

// Settling is a period of a grant that has ended, or in which the grant has,
// and whose use is to be covered.
type Settling struct {
	Account string
	Limit   Applied // the quota, with the grant's scope
	Period  Period
	Over    bool // the period has ended; else the grant has, in it
}

// Settle works out what grants covered of periods that have ended by now, or in
// which the grant has. It returns all uses, to be kept in place of those before,
// of each grant of which something is new. Of each quota the earlier period goes
// first, since the next depends on it, at most rounds of them. With again,
// periods that ended within [LateSpan] are looked at once more, for late
// Refunds; of those before, but the newest, the uses are put together.
//
// used returns the use of each period that it is asked for, in order. Of a
// period that is over it is what was spent and what open reservations still
// hold, so that nothing is given twice; of another, what was spent.
func (p *Policy) Settle(now time.Time, again bool, rounds int, used func([]Settling) ([]Amount, error)) ([]GrantUse, error) {
	s := settler{policy: p, uses: make(map[grantKey]grantUses)}
	recheck := now
	if again {
		recheck = now.Add(-LateSpan)
	}
	grants := s.grants(recheck)
	var failed error
	for range rounds {
		due := s.earliest(grants, now)
		if len(due) == 0 {
			break
		}
		asked := make([]Settling, len(due))
		for i, g := range due {
			asked[i] = Settling{Account: g.account.Name, Limit: g.limit, Period: g.period, Over: !now.Before(g.period.End)}
		}
		var amounts []Amount
		if amounts, failed = used(asked); failed != nil {
			break
		}
		for i, g := range due {
			s.settle(g, amounts[i])
			g.advance()
		}
	}
	var found []GrantUse
	for _, g := range grants {
		if uses, changed := s.uses[g.key]; changed {
			found = append(found, uses.folded(g.account.PeriodAt(g.limit.Limit.Period, now.Add(-LateSpan)).Key).rows(g.key)...)
		}
	}
	return found, failed
}

// settler adds what it works out to what the policy knows.
type settler struct {
	policy *Policy
	uses   map[grantKey]grantUses // of grants of which something is new
}

// settledGrant is a grant and the period of it that comes next.
type settledGrant struct {
	key     grantKey
	grant   *Grant
	account Account
	limit   Applied
	period  Period
	over    bool // the grant has ended before the period
}

// counter names what grants share.
type grantCounter struct{ account, limit, scope string }

func (g *settledGrant) counter() grantCounter {
	return grantCounter{g.account.Name, g.limit.ID, g.limit.Scope}
}

// grants lists the grants in order, each at the first period that is to be
// looked at.
func (s *settler) grants(recheck time.Time) []*settledGrant {
	var all []*settledGrant
	for _, name := range s.policy.granted {
		account := s.policy.Accounts[name]
		limits, err := s.policy.resolved(name)
		if err != nil {
			continue
		}
		for i := range account.Grants {
			g := &account.Grants[i]
			at := slices.IndexFunc(limits, func(a Applied) bool { return a.Limit.Name == g.Limit })
			if at < 0 || g.From.IsZero() {
				continue
			}
			limit := limits[at]
			limit.Scope = g.Scope
			next := &settledGrant{key: grantKey{name, g.Name}, grant: g, account: account, limit: limit}
			next.period = account.PeriodAt(limit.Limit.Period, g.From)
			for _, use := range s.of(next.key).newer {
				known, err := PeriodFromKey(use.period, account.TimeZone, account.AnchorDay)
				if err != nil {
					continue // of another anchor day or zone, which the account had
				}
				if next.period = known; next.again(recheck) {
					break
				}
				next.advance()
			}
			all = append(all, next)
		}
	}
	return all
}

func (s *settler) of(key grantKey) grantUses {
	if own, changed := s.uses[key]; changed {
		return own
	}
	return s.policy.uses[key]
}

// again says whether a period whose use is known is looked at again. Where the
// grant ended first, later use is none of its.
func (g *settledGrant) again(recheck time.Time) bool {
	return g.ends().Equal(g.period.End) && g.ends().After(recheck)
}

// earliest returns the grants that are due: of each counter those of the
// earliest period, the one that ends first before the others.
func (s *settler) earliest(grants []*settledGrant, now time.Time) []*settledGrant {
	first := make(map[grantCounter]time.Time)
	var due []*settledGrant
	for _, g := range grants {
		if g.over || now.Before(g.ends()) || g.grant.Amount == s.of(g.key).outside(g.period.Key, g.grant.Amount) {
			continue
		}
		due = append(due, g)
		if start, known := first[g.counter()]; !known || g.period.Start.Before(start) {
			first[g.counter()] = g.period.Start
		}
	}
	due = slices.DeleteFunc(due, func(g *settledGrant) bool { return g.period.Start.After(first[g.counter()]) })
	slices.SortStableFunc(due, func(a, b *settledGrant) int { return a.ends().Compare(b.ends()) })
	return due
}

// ends is the end of the period or of the grant, whichever is first.
func (g *settledGrant) ends() time.Time {
	if !g.grant.Until.IsZero() && g.grant.Until.Before(g.period.End) {
		return g.grant.Until
	}
	return g.period.End
}

func (g *settledGrant) advance() {
	g.over = g.grant.Ended(g.period.End) // a grant that ends with its period has no next one
	g.period = g.account.PeriodAt(g.limit.Limit.Period, g.period.End)
}

// settle notes what the grant covered of the use of its period.
func (s *settler) settle(g *settledGrant, used Amount) {
	// As of the last instant of it, when it had not ended.
	shares := shares(g.account, g.limit, g.period, g.ends().Add(-1), s.of)
	var own Amount
	for i, amount := range covered(g.limit.Limit.Max, shares, used) {
		if shares[i].grant == g.grant {
			own = amount
		}
	}
	uses := s.of(g.key)
	if was := uses.in(g.period.Key); was != own || uses.newest() < g.period.Key {
		s.uses[g.key] = uses.with(g.period.Key, own)
	}
}
