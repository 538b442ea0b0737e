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
