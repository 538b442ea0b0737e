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
	Period  string // Period.Key
	Covered Amount
}

// Started says whether the grant counts from that instant or an earlier one.
func (g *Grant) Started(at time.Time) bool { return !at.Before(g.From) }

// Ended says whether the grant has ended.
func (g *Grant) Ended(at time.Time) bool { return !g.Until.IsZero() && !at.Before(g.Until) }

// compare is the order in which grants cover a quota's use.
func (g *Grant) compare(other *Grant) int {
	end := func(g *Grant) time.Time {
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
	stated := make(map[string]bool, len(grants))
	for i, grant := range grants {
		path := "grants." + grant.Name
		if !isName(grant.Name) {
			path = fmt.Sprintf("grants[%d]", i)
		}
		f.under(path, grant.Validate())
		if stated[grant.Name] {
			f.add(path, "the name is stated twice; every grant of an account needs a name of its own")
		}
		stated[grant.Name] = true
	}
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
		if len(limit.Per) > 0 && grant.Scope == "" {
			f.add(path+".grants."+grant.Name+".scope", "the quota %s has a counter for each %v; say which, as in %s=...", quoteShort(limit.Name), limit.Per, limit.Per[0])
		}
		if len(limit.Per) == 0 && grant.Scope != "" {
			f.add(path+".grants."+grant.Name+".scope", "the quota %s has one counter for the whole account; leave it out", quoteShort(limit.Name))
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
	for _, s := range shares(account, a, period, at, func(key grantKey) map[string]Amount { return p.uses[key] }) {
		allowance.Granted = min(allowance.Granted+s.has, MaxAmount) // two amounts of 53 bits can't leave 64
	}
	allowance.Max = min(allowance.Max+allowance.Granted, MaxAmount)
	return allowance
}

// shares returns what each grant of the quota has for the period.
func shares(account Account, a Applied, period Period, at time.Time, usesOf func(grantKey) map[string]Amount) []share {
	var shares []share
	for i := range account.Grants {
		g := &account.Grants[i]
		if g.Limit != a.Limit.Name || g.Scope != a.Scope || !g.Started(at) || !g.From.Before(period.End) {
			continue
		}
		uses := usesOf(grantKey{account.Name, g.Name})
		if g.Ended(at) {
			if g.Until.After(period.Start) && uses[period.Key] > 0 {
				shares = append(shares, share{g, min(uses[period.Key], g.Amount), true})
			}
			continue
		}
		if g.From.Before(period.Start) {
			before := account.PeriodAt(a.Limit.Period, period.Start.Add(-1))
			if _, known := uses[before.Key]; !known {
				continue
			}
		}
		has := g.Amount
		for key, covered := range uses {
			if key != period.Key {
				has -= min(covered, has)
			}
		}
		if has > 0 {
			shares = append(shares, share{grant: g, has: has})
		}
	}
	slices.SortFunc(shares, func(a, b share) int { return a.grant.compare(b.grant) })
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

// Settling is a period of a grant that has ended, or in which the grant has,
// and whose use is to be covered.
type Settling struct {
	Account string
	Limit   Applied // the quota, with the grant's scope
	Period  Period
}

// Settle works out what grants covered of periods that have ended by now, or in
// which the grant has, and returns what is new or different: for each grant the
// earlier period first, at most rounds of them, since each depends on the one
// before. Periods that ended after recheck are looked at again, for late
// Refunds. used returns the use of each period that it is asked for, in order.
func (p *Policy) Settle(now, recheck time.Time, rounds int, used func([]Settling) ([]Amount, error)) ([]GrantUse, error) {
	s := settler{policy: p, uses: make(map[grantKey]map[string]Amount)}
	var found []GrantUse
	grants := s.grants()
	for range rounds {
		var asked []Settling
		var due []*settledGrant
		for _, g := range grants {
			if s.due(g, now, recheck) {
				due = append(due, g)
				asked = append(asked, Settling{Account: g.account.Name, Limit: g.limit, Period: g.period})
			}
		}
		if len(due) == 0 {
			return found, nil
		}
		amounts, err := used(asked)
		if err != nil {
			return found, err
		}
		for i, g := range due {
			if use, differs := s.settle(g, amounts[i]); differs {
				found = append(found, use)
			}
			g.advance()
		}
		grants = due
	}
	return found, nil
}

// settler adds what it works out to what the policy knows.
type settler struct {
	policy *Policy
	uses   map[grantKey]map[string]Amount // of grants of which something is new
}

// settledGrant is a grant and the period of it that comes next.
type settledGrant struct {
	key     grantKey
	grant   *Grant
	account Account
	limit   Applied
	period  Period
	over    bool // the grant ended in the period before
}

// grants lists the grants in order, each at its first period.
func (s *settler) grants() []*settledGrant {
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
			all = append(all, &settledGrant{
				key: grantKey{name, g.Name}, grant: g, account: account, limit: limit,
				period: account.PeriodAt(limit.Limit.Period, g.From),
			})
		}
	}
	return all
}

func (s *settler) of(key grantKey) map[string]Amount {
	if own, changed := s.uses[key]; changed {
		return own
	}
	return s.policy.uses[key]
}

// due moves the grant on to the next period that is to be settled, and says
// whether there is one.
func (s *settler) due(g *settledGrant, now, recheck time.Time) bool {
	for !g.over && !now.Before(g.ends()) && s.left(g) > 0 {
		// Where the grant ended first, later use is none of its.
		late := g.ends().Equal(g.period.End) && g.ends().After(recheck)
		if _, known := s.of(g.key)[g.period.Key]; !known || late {
			return true
		}
		g.advance()
	}
	return false
}

// left is what the periods before leave of the grant.
func (s *settler) left(g *settledGrant) Amount {
	left := g.grant.Amount
	for key, covered := range s.of(g.key) {
		if key != g.period.Key {
			left -= min(covered, left)
		}
	}
	return left
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
func (s *settler) settle(g *settledGrant, used Amount) (GrantUse, bool) {
	// As of the last instant of it, when it had not ended.
	shares := shares(g.account, g.limit, g.period, g.ends().Add(-1), s.of)
	use := GrantUse{Account: g.account.Name, Grant: g.grant.Name, Period: g.period.Key}
	for i, amount := range covered(g.limit.Limit.Max, shares, used) {
		if shares[i].grant == g.grant {
			use.Covered = amount
		}
	}
	was, known := s.of(g.key)[g.period.Key]
	if known && was == use.Covered {
		return use, false
	}
	own := make(map[string]Amount)
	for key, amount := range s.of(g.key) {
		own[key] = amount
	}
	own[g.period.Key] = use.Covered
	s.uses[g.key] = own
	return use, true
}

type grantKey struct{ account, grant string }
