package quota_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
)

func onDay(text string) time.Time {
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		panic(err)
	}
	return at
}

func grantedPolicy(t testing.TB, own quota.Amount, grants ...quota.Grant) *quota.Policy {
	t.Helper()
	policy, err := quota.NewPolicy(
		[]quota.Plan{{Name: "pro", Limits: []quota.Limit{{Name: "month", Meter: "tokens", Kind: quota.KindQuota, Max: own, Period: quota.PeriodMonth}}}},
		nil, []quota.Account{{Name: "acme", Plan: "pro", Grants: grants}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func allows(t testing.TB, policy *quota.Policy, at time.Time) quota.Allowance {
	t.Helper()
	applied, err := policy.Applied("acme", nil)
	if err != nil {
		t.Fatal(err)
	}
	account := policy.Accounts["acme"]
	return policy.Allowance(account, applied[0], account.PeriodAt(quota.PeriodMonth, at), at)
}

// settled has the policy learn what its grants covered by now, from the use of
// each period.
func settled(t testing.TB, policy *quota.Policy, now time.Time, used map[string]quota.Amount, known []quota.GrantUse) (*quota.Policy, []quota.GrantUse) {
	t.Helper()
	uses, err := policy.Settle("acme", now, quota.AgainAll, 100, usedOf(used))
	if err != nil {
		t.Fatal(err)
	}
	known = replaced(known, uses)
	return with(t, policy, known), known
}

// usedOf answers with the use of each period, by its key.
func usedOf(used map[string]quota.Amount) func([]quota.Settling) ([]quota.Used, error) {
	return func(asked []quota.Settling) ([]quota.Used, error) {
		amounts := make([]quota.Used, len(asked))
		for i := range asked {
			amounts[i].Amount = used[asked[i].Period.Key]
		}
		return amounts, nil
	}
}

func with(t testing.TB, p *quota.Policy, uses []quota.GrantUse) *quota.Policy {
	t.Helper()
	w, err := p.With(nil, uses)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// replaced puts the uses of each grant in place of those before.
func replaced(known, uses []quota.GrantUse) []quota.GrantUse {
	known = slices.DeleteFunc(slices.Clone(known), func(k quota.GrantUse) bool {
		return slices.ContainsFunc(uses, func(u quota.GrantUse) bool { return u.Account == k.Account && u.Grant == k.Grant })
	})
	return append(known, uses...)
}

// TestTopUpIsCarriedOver: what January leaves of a top-up is there in February,
// once it is known; until then the quota's own amount stands alone.
func TestTopUpIsCarriedOver(t *testing.T) {
	policy := grantedPolicy(t, 100, quota.Grant{Name: "top-up", Limit: "month", Amount: 50, From: onDay("2026-01-10")})
	january, february := onDay("2026-01-31"), onDay("2026-02-01")
	if got := allows(t, policy, onDay("2026-01-09")); got.Max != 100 {
		t.Errorf("before it begins: %+v", got)
	}
	if got := allows(t, policy, january); got != (quota.Allowance{Max: 150, Granted: 50}) {
		t.Errorf("in January: %+v", got)
	}
	if got := allows(t, policy, february); got.Max != 100 {
		t.Errorf("in February, while January is not settled: %+v", got)
	}
	used := map[string]quota.Amount{"m2026-01-01": 120}
	policy, uses := settled(t, policy, february, used, nil)
	if len(uses) != 2 || uses[0].Covered != 20 || uses[1].State != quota.UseOpen {
		t.Errorf("%+v, want 20 covered in January, and February open", uses)
	}
	if got := allows(t, policy, february); got != (quota.Allowance{Max: 130, Granted: 30}) {
		t.Errorf("in February: %+v", got)
	}
	// A late Refund of January is noticed within a day.
	used["m2026-01-01"] = 125
	policy, uses = settled(t, policy, february.Add(time.Hour), used, uses)
	if got := allows(t, policy, february.Add(time.Hour)); got.Granted != 25 {
		t.Errorf("after a late Refund: %+v, %+v", got, uses)
	}
}

// TestGrantEndsInMidPeriod: what it covered stays covered, the rest goes.
func TestGrantEndsInMidPeriod(t *testing.T) {
	for name, c := range map[string]struct {
		priority int
		used     quota.Amount
		max      quota.Amount
	}{
		"before the own amount":              {-1, 30, 130},
		"before the own amount, and beyond":  {-1, 80, 150},
		"after the own amount, not reached":  {1, 80, 100},
		"after the own amount, partly used":  {1, 120, 120},
		"after the own amount, and overrun":  {1, 500, 150},
		"nothing used":                       {-1, 0, 100},
		"a use below zero, as of correction": {-1, -10, 100},
	} {
		policy := grantedPolicy(t, 100, quota.Grant{
			Name: "promo", Limit: "month", Amount: 50, From: onDay("2026-01-05"), Until: onDay("2026-01-20"), Priority: c.priority,
		})
		at := onDay("2026-01-20")
		if got := allows(t, policy, at.Add(-1)); got.Max != 150 {
			t.Errorf("%s: before it ends: %+v", name, got)
		}
		if got := allows(t, policy, at); got.Max != 100 {
			t.Errorf("%s: ended, and not settled: %+v", name, got)
		}
		policy, uses := settled(t, policy, at, map[string]quota.Amount{"m2026-01-01": c.used}, nil)
		// What is used later is none of its, however soon we look again.
		policy, _ = settled(t, policy, at.Add(time.Second), map[string]quota.Amount{"m2026-01-01": c.max}, uses)
		if got := allows(t, policy, at); got.Max != c.max {
			t.Errorf("%s: after its end: %+v, want %d", name, got, c.max)
		}
		if got := allows(t, policy, onDay("2026-02-01")); got.Max != 100 {
			t.Errorf("%s: in February: %+v", name, got)
		}
	}
}

// TestGrantsInOrder: the lower priority first, then the earlier end.
func TestGrantsInOrder(t *testing.T) {
	grant := func(name string, priority int, until string) quota.Grant {
		g := quota.Grant{Name: name, Limit: "month", Amount: 10, From: onDay("2026-01-01"), Priority: priority}
		if until != "" {
			g.Until = onDay(until)
		}
		return g
	}
	policy := grantedPolicy(t, 100,
		grant("last", 5, "2026-03-01"), grant("first", -3, ""), grant("third", 0, "2026-03-05"), grant("fourth", 0, ""), grant("second", -1, "2026-02-15"))
	_, uses := settled(t, policy, onDay("2026-02-01"), map[string]quota.Amount{"m2026-01-01": 135}, nil)
	got := map[string]quota.Amount{}
	for _, use := range uses {
		got[use.Grant] += use.Covered
	}
	want := map[string]quota.Amount{"first": 10, "second": 10, "third": 10, "fourth": 5, "last": 0}
	if !maps.Equal(got, want) {
		t.Errorf("covered: %v, want %v", got, want)
	}
}

// TestExcessIsCoveredOnce: two grants, one of which ended in the period, and
// nobody looked until long after.
func TestExcessIsCoveredOnce(t *testing.T) {
	policy := grantedPolicy(t, 100,
		quota.Grant{Name: "ended", Limit: "month", Amount: 50, From: onDay("2026-01-01"), Until: onDay("2026-01-10")},
		quota.Grant{Name: "goes-on", Limit: "month", Amount: 50, From: onDay("2026-01-01")},
		quota.Grant{Name: "later", Limit: "month", Amount: 50, From: onDay("2026-02-01"), Priority: 9})
	_, uses := settled(t, policy, onDay("2026-04-01"), map[string]quota.Amount{"m2026-01-01": 130, "m2026-02-01": 110, "m2026-03-01": 175}, nil)
	got := map[string]quota.Amount{}
	for _, use := range uses {
		got[use.Grant] += use.Covered
	}
	if want := (map[string]quota.Amount{"ended": 30, "goes-on": 50, "later": 35}); !maps.Equal(got, want) {
		t.Errorf("covered %v, want %v", got, want)
	}
}

// TestOldUsesAreFolded: a grant on a quota a day has few rows, however long it
// has run, and what they say together stays.
func TestOldUsesAreFolded(t *testing.T) {
	policy, err := quota.NewPolicy(
		[]quota.Plan{{Name: "pro", Limits: []quota.Limit{{Name: "day", Meter: "tokens", Kind: quota.KindQuota, Max: 10, Period: quota.PeriodDay}}}},
		nil, []quota.Account{{Name: "acme", Plan: "pro", Grants: []quota.Grant{{Name: "g", Limit: "day", Amount: 1000, From: onDay("2026-01-01")}}}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var uses []quota.GrantUse
	days := 0
	used := func(asked []quota.Settling) ([]quota.Used, error) {
		days += len(asked)
		return slices.Repeat([]quota.Used{{Amount: 12}}, len(asked)), nil
	}
	now := onDay("2026-07-01")
	for range 10 {
		found, err := policy.Settle("acme", now, quota.AgainNothing, 64, used)
		if err != nil {
			t.Fatal(err)
		}
		uses = replaced(uses, found)
		if policy, err = policy.With(nil, uses); err != nil {
			t.Fatal(err)
		}
	}
	total := quota.Amount(0)
	for _, use := range uses {
		total += use.Covered
	}
	if len(uses) > 43 || total != 181*2 {
		t.Errorf("%d rows of %d covered in 181 days, want 40 days and 362: %+v", len(uses), total, uses)
	}
	if days != 181 {
		t.Errorf("%d days were looked at for 181", days)
	}
}

func TestBadGrants(t *testing.T) {
	good := quota.Grant{Name: "g", Limit: "month", Amount: 1, From: onDay("2026-01-01")}
	for want, change := range map[string]func(*quota.Grant){
		"grants.g.amount: 0 is not between 1":                func(g *quota.Grant) { g.Amount = 0 },
		"grants.g.limit: the account has no quota":           func(g *quota.Grant) { g.Limit = "year" },
		"grants.g.priority: 101 is not between -100 and 100": func(g *quota.Grant) { g.Priority = 101 },
		"grants.g.until: 2026-01-01T00:00:00Z is not after":  func(g *quota.Grant) { g.Until = g.From },
		"grants.g.scope: month has one counter":              func(g *quota.Grant) { g.Scope = "team=a" },
		"grants.g.amount: the quota \"month\" counts tokens": func(g *quota.Grant) { g.Money = true },
		"grants.g.reason: it contains a control character":   func(g *quota.Grant) { g.Reason = "\x07" },
		"grants[0].name: \"G\" is not a name":                func(g *quota.Grant) { g.Name = "G" },
	} {
		bad := good
		change(&bad)
		_, err := quota.NewPolicy(
			[]quota.Plan{{Name: "pro", Limits: []quota.Limit{{Name: "month", Meter: "tokens", Kind: quota.KindQuota, Max: 1, Period: quota.PeriodMonth}}}},
			nil, []quota.Account{{Name: "acme", Plan: "pro", Grants: []quota.Grant{bad}}}, 1)
		if err == nil || !strings.Contains(err.Error(), "accounts.acme."+want) {
			t.Errorf("got %v, want accounts.acme.%s", err, want)
		}
	}
}

func TestScopesThatALimitGives(t *testing.T) {
	l := quota.Limit{Name: "spend", Per: []string{"user", "team", "account"}}
	for _, labels := range []map[string]string{nil, {"team": "red"}, {"team": "a=b,c%", "user": ""}, {"user": "é", "other": "x"}} {
		if err := l.CheckScope(l.Scope(labels)); err != nil {
			t.Errorf("%v: %v", labels, err)
		}
	}
	for _, scope := range []string{"", "team", "tem=red,user", "user=7,team=red", "team=a=b,user", "team=red,user=7,x=1", "team=%41,user", "team=%zz,user", "nonsense"} {
		if err := l.CheckScope(scope); err == nil {
			t.Errorf("%q was accepted", scope)
		}
	}
	if err := (quota.Limit{Name: "n"}).CheckScope("team=red"); err == nil {
		t.Error("a scope of a limit without any was accepted")
	}
}

func TestPricesByInstant(t *testing.T) {
	rates := func(input int64) map[string]quota.NanoUSD {
		return map[string]quota.NanoUSD{"input": quota.NanoUSD(input), "output": 2}
	}
	prices := []quota.ModelPrice{
		{Provider: "openai", Model: "m", From: onDay("2026-03-01"), Rates: rates(3)},
		{Provider: "openai", Model: "m", From: onDay("2026-01-01"), Rates: rates(1)},
		{Provider: "openai", Model: "n", From: onDay("2026-02-01"), Rates: rates(9)},
	}
	policy, err := grantedPolicy(t, 1).With(prices, nil)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Time]quota.NanoUSD{
		onDay("2026-01-01").Add(-1): 0, onDay("2026-01-01"): 1, onDay("2026-03-01").Add(-1): 1, onDay("2026-03-01"): 3,
	} {
		got, stated := policy.PriceAt("OpenAI", "M", at) // whatever the case
		if stated != (want != 0) || got.Rates["input"] != want {
			t.Errorf("at %s: %v, want %d", at, got, want)
		}
	}
	for want, bad := range map[string]quota.ModelPrice{
		`.output: it is missing`:       {Provider: "p", Model: "m", From: onDay("2026-01-01"), Rates: map[string]quota.NanoUSD{"input": 1}},
		`.from: it is missing`:         {Provider: "p", Model: "m", Rates: rates(1)},
		`.input: -$0.000000001 is not`: {Provider: "p", Model: "m", From: onDay("2026-01-01"), Rates: rates(-1)},
		`two prices begin at`:          prices[0],
		`is stated as "openai/M" too`:  {Provider: "openai", Model: "M", From: onDay("2026-05-01"), Rates: rates(1)},
		`.provider: "a/b" contains a`:  {Provider: "a/b", Model: "m", From: onDay("2026-01-01"), Rates: rates(1)},
	} {
		if _, err := grantedPolicy(t, 1).With(append([]quota.ModelPrice{bad}, prices...), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
