package quota_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
)

// policyOf has one account with one quota, "month", whatever its unit.
func policyOf(t require, own quota.Amount, unit quota.PeriodUnit, zone string, anchor int, grants ...quota.Grant) *quota.Policy {
	t.Helper()
	policy, err := quota.NewPolicy(
		[]quota.Plan{{Name: "pro", Limits: []quota.Limit{{Name: "month", Meter: "tokens", Kind: quota.KindQuota, Max: own, Period: unit}}}},
		nil, []quota.Account{{Name: "acme", Plan: "pro", TimeZone: zone, AnchorDay: anchor, Grants: grants}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// require is what a test and a property have in common.
type require interface {
	Helper()
	Fatal(args ...any)
}

// runs is the quota of acme, and the period of it that runs.
func runs(t require, policy *quota.Policy, at time.Time) (quota.Applied, quota.Period) {
	t.Helper()
	applied, err := policy.Applied("acme", nil)
	if err != nil {
		t.Fatal(err)
	}
	return applied[0], policy.Accounts["acme"].PeriodAt(applied[0].Limit.Period, at)
}

func grantedAt(t require, policy *quota.Policy, at time.Time) quota.Amount {
	t.Helper()
	limit, period := runs(t, policy, at)
	return policy.Allowance(policy.Accounts["acme"], limit, period, at).Granted
}

// TestPlanChangeLeavesCoveredAlone: a plan that changes after a period's end is
// none of that period's business.
func TestPlanChangeLeavesCoveredAlone(t *testing.T) {
	grant := quota.Grant{Name: "top-up", Limit: "month", Amount: 50, From: onDay("2026-11-10")}
	december := onDay("2026-12-01")
	for _, c := range []struct{ used, own, left quota.Amount }{
		{150, 200, 0}, // the whole grant was used, and the plan is larger now
		{90, 40, 50},  // nothing of it was, and the plan is smaller now
	} {
		for _, lastLook := range []time.Time{december.Add(-time.Minute), december} { // November is settled after the change, and before
			known := map[string]quota.Amount{"m2026-11-01": c.used}
			policy, uses := settled(t, policyOf(t, 100, quota.PeriodMonth, "", 1, grant), onDay("2026-11-11"), known, nil)
			_, uses = settled(t, policy, lastLook, known, uses)
			changed := with(t, policyOf(t, c.own, quota.PeriodMonth, "", 1, grant), uses)
			changed, _ = settled(t, changed, december.Add(10*time.Hour), known, uses)
			if got := grantedAt(t, changed, december.Add(11*time.Hour)); got != c.left {
				t.Errorf("used %d of 100, then %d a month: %d of 50 is left, want %d", c.used, c.own, got, c.left)
			}
		}
	}
}

// TestAmountOfThePeriodCounts: what counts of a period is the last amount in it.
func TestAmountOfThePeriodCounts(t *testing.T) {
	grant := quota.Grant{Name: "top-up", Limit: "month", Amount: 50, From: onDay("2026-11-10")}
	used := map[string]quota.Amount{"m2026-11-01": 130}
	_, uses := settled(t, policyOf(t, 100, quota.PeriodMonth, "", 1, grant), onDay("2026-11-11"), used, nil)
	raised := with(t, policyOf(t, 120, quota.PeriodMonth, "", 1, grant), uses)
	raised, uses = settled(t, raised, onDay("2026-11-12"), used, uses)
	raised, _ = settled(t, raised, onDay("2026-12-01"), used, uses)
	if got := grantedAt(t, raised, onDay("2026-12-01")); got != 40 {
		t.Errorf("130 used of 120: %d of 50 is left, want 40", got)
	}
}

// TestUnitChange: a quota that counted by one unit and counts by another.
func TestUnitChange(t *testing.T) {
	grant := quota.Grant{Name: "top-up", Limit: "month", Amount: 50, From: onDay("2026-10-10")}
	_, uses := settled(t, policyOf(t, 100, quota.PeriodMonth, "", 1, grant), onDay("2026-11-01"), nil, nil)
	daily := with(t, policyOf(t, 100, quota.PeriodDay, "", 1, grant), uses)
	if got := grantedAt(t, daily, onDay("2026-11-03")); got != 0 {
		t.Errorf("from month to day, before the month is settled: %d is granted", got)
	}
	used := map[string]quota.Amount{"m2026-11-01": 110}
	daily, uses = settled(t, daily, onDay("2026-11-03"), used, uses)
	if got := grantedAt(t, daily, onDay("2026-11-03")); got != 40 {
		t.Errorf("from month to day: %d is granted, want 40", got)
	}
	// And back within the month: its use goes on to be the month's.
	monthly := with(t, policyOf(t, 100, quota.PeriodMonth, "", 1, grant), uses)
	used["d2026-11-03"] = 130
	monthly, _ = settled(t, monthly, onDay("2026-11-03").Add(time.Hour), used, uses)
	if got := grantedAt(t, monthly, onDay("2026-11-03").Add(time.Hour)); got != 20 {
		t.Errorf("and back: %d is granted beside the month's own, want the 50 but for the day's 30", got)
	}
}

// TestCalendarChange: another anchor day or zone in mid-period keeps what a grant
// covered of the period that was left.
func TestCalendarChange(t *testing.T) {
	grant := quota.Grant{Name: "top-up", Limit: "month", Amount: 50, From: onDay("2026-11-02")}
	used := map[string]quota.Amount{"m2026-11-01": 150}
	for _, c := range []struct {
		zone   string
		anchor int
	}{{"", 15}, {"Asia/Tokyo", 1}, {"America/Los_Angeles", 1}, {"Asia/Tokyo", 31}} {
		_, uses := settled(t, policyOf(t, 100, quota.PeriodMonth, "", 1, grant), onDay("2026-11-20"), used, nil)
		moved := with(t, policyOf(t, 100, quota.PeriodMonth, c.zone, c.anchor, grant), uses)
		for _, day := range []string{"2026-11-20", "2026-11-21", "2026-12-02"} {
			moved, uses = settled(t, moved, onDay(day), used, uses)
		}
		if got := grantedAt(t, moved, onDay("2026-12-02")); got != 0 {
			t.Errorf("%+v: the grant was used up by November 20 and gives %d again: %+v", c, got, uses)
		}
	}
}

// TestOpenUseIsLookedAtAgain: of what was still open when a period was settled
// the rest is known later, however late, and of what the ledger changed too.
func TestOpenUseIsLookedAtAgain(t *testing.T) {
	grant := quota.Grant{Name: "top-up", Limit: "month", Amount: 50, From: onDay("2026-11-10")}
	policy := policyOf(t, 100, quota.PeriodMonth, "", 1, grant)
	var uses []quota.GrantUse
	look := func(at time.Time, again quota.Again, used quota.Used, want quota.Amount) {
		t.Helper()
		found, err := policy.Settle("acme", at, again, 9, func(asked []quota.Settling) ([]quota.Used, error) {
			return slices.Repeat([]quota.Used{used}, len(asked)), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		uses = replaced(uses, found)
		policy = with(t, policy, uses)
		if got := grantedAt(t, policy, at); got != want {
			t.Errorf("%s: %d is granted, want %d", at, got, want)
		}
	}
	december := onDay("2026-12-01")
	look(december, quota.AgainNothing, quota.Used{Amount: 150, Open: true}, 0)
	if waiting := policy.GrantSchedule(december).Waiting(); !slices.Equal(waiting, []string{"acme"}) {
		t.Errorf("waiting: %v", waiting)
	}
	look(december.AddDate(0, 0, 3), quota.AgainWaiting, quota.Used{Amount: 110}, 40)
	if waiting := policy.GrantSchedule(december).Waiting(); len(waiting) > 0 {
		t.Errorf("waiting after nothing is open: %v", waiting)
	}
	look(december.AddDate(0, 0, 4), quota.AgainWaiting, quota.Used{Amount: 130}, 40)
	look(december.AddDate(0, 0, 20), quota.AgainAll, quota.Used{Amount: 130}, 20)
}

// TestNothingDueCostsNothing: with every grant open, a look compares one instant.
func TestNothingDueCostsNothing(t *testing.T) {
	var accounts []quota.Account
	var uses []quota.GrantUse
	grant := quota.Grant{Name: "welcome", Limit: "month", Amount: 50, From: onDay("2026-11-10")}
	for i := range 2000 {
		accounts = append(accounts, quota.Account{Name: fmt.Sprintf("a%d", i), Plan: "pro", TimeZone: "Europe/Berlin", Grants: []quota.Grant{grant}})
	}
	plans := []quota.Plan{{Name: "pro", Limits: []quota.Limit{{Name: "month", Meter: "tokens", Kind: quota.KindQuota, Max: 100, Period: quota.PeriodMonth}}}}
	policy, err := quota.NewPolicy(plans, nil, accounts, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, account := range accounts {
		uses = append(uses, policy.FirstUses(account.Name)...)
	}
	policy = with(t, policy, uses)
	november := onDay("2026-11-15")
	schedule := policy.GrantSchedule(november)
	if due := schedule.Due(november.AddDate(0, 0, 10)); len(due) > 0 {
		t.Errorf("%d accounts are due in mid-period", len(due))
	}
	// Berlin's December begins an hour earlier than UTC's.
	if due := schedule.Due(onDay("2026-12-01").Add(-time.Hour)); len(due) != len(accounts) {
		t.Errorf("%d accounts are due at the period's end, want all", len(due))
	}
	if allocs := testing.AllocsPerRun(10, func() { schedule.Due(november) }); allocs > 1 {
		t.Errorf("a look at nothing makes %v allocations", allocs)
	}
}

// TestGrantsNeverGiveTwice: whatever is used, whoever settles with whatever clock
// of a node, and however plan, unit, zone and anchor day change: what grants
// cover never passes their amounts, and never is more spent than what the quota
// itself allowed in its periods and the grants together.
func TestGrantsNeverGiveTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		begin := onDay("2026-01-01")
		var grants []quota.Grant
		var most quota.Amount // of grants and of periods themselves
		for i := range rapid.IntRange(1, 3).Draw(t, "grants") {
			g := quota.Grant{
				Name: string(rune('a' + i)), Limit: "month", Amount: quota.Amount(rapid.IntRange(1, 100).Draw(t, "amount")),
				From:     begin.AddDate(0, 0, rapid.IntRange(0, 40).Draw(t, "from")),
				Priority: rapid.IntRange(-2, 2).Draw(t, "priority"),
			}
			if rapid.Bool().Draw(t, "ends") {
				g.Until = g.From.AddDate(0, 0, rapid.IntRange(1, 100).Draw(t, "until"))
			}
			grants, most = append(grants, g), most+g.Amount
		}
		own, unit, zone, anchor := quota.Amount(100), quota.PeriodMonth, "UTC", 1
		policy := policyOf(t, own, unit, zone, anchor, grants...)
		known := policy.FirstUses("acme") // as a store keeps them
		used, owns := map[[2]string]quota.Amount{}, map[[2]string]quota.Amount{}
		reload := func() {
			var err error
			if policy, err = policyOf(t, own, unit, zone, anchor, grants...).With(nil, known); err != nil {
				t.Fatal(err)
			}
		}
		reload()
		for at := begin; at.Before(onDay("2026-06-01")); at = at.Add(time.Duration(rapid.IntRange(6, 90).Draw(t, "hours")) * time.Hour) {
			switch rapid.IntRange(0, 9).Draw(t, "change") {
			case 0:
				unit = rapid.SampledFrom([]quota.PeriodUnit{quota.PeriodDay, quota.PeriodWeek, quota.PeriodMonth, quota.PeriodYear}).Draw(t, "unit")
			case 1:
				zone = rapid.SampledFrom([]string{"UTC", "Asia/Tokyo", "America/Los_Angeles"}).Draw(t, "zone")
			case 2:
				anchor = rapid.SampledFrom([]int{1, 15, 31}).Draw(t, "anchor")
			case 3:
				own = quota.Amount(rapid.IntRange(1, 200).Draw(t, "own"))
			}
			reload()
			if rapid.IntRange(0, 4).Draw(t, "keeper") > 0 { // else it is away
				again := rapid.SampledFrom([]quota.Again{quota.AgainNothing, quota.AgainWaiting, quota.AgainAll}).Draw(t, "again")
				found, err := policy.Settle("acme", at, again, rapid.IntRange(1, 64).Draw(t, "rounds"), func(asked []quota.Settling) ([]quota.Used, error) {
					amounts := make([]quota.Used, len(asked))
					for i, a := range asked {
						amounts[i] = quota.Used{Amount: used[[2]string{a.Limit, a.Period.Key}], Open: rapid.Bool().Draw(t, "open")}
						if a.Over && a.Period.Contains(at) && policyRuns(t, policy, at, a) {
							t.Fatalf("%s was settled as over at %s", a.Period.Key, at)
						}
					}
					return amounts, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				known = replaced(known, found)
				reload()
			}
			limit, period := runs(t, policy, at)
			key := [2]string{limit.ID, period.Key}
			allowed := policy.Allowance(policy.Accounts["acme"], limit, period, at)
			owns[key] = max(owns[key], own)
			if left := allowed.Max - used[key]; left > 0 {
				used[key] += quota.Amount(rapid.IntRange(0, int(left)).Draw(t, "use"))
			}
			total := map[string]quota.Amount{}
			for _, use := range known {
				total[use.Grant] += use.Covered
			}
			for _, g := range grants {
				if total[g.Name] > g.Amount {
					t.Fatalf("grant %s of %d covered %d: %+v", g.Name, g.Amount, total[g.Name], known)
				}
			}
		}
		var all quota.Amount
		for key, amount := range used {
			most += owns[key]
			all += amount
		}
		if all > most {
			t.Fatalf("%d was used where %d could be, with grants %+v: %v, of their own %v; %+v", all, most, grants, used, owns, known)
		}
	})
}

// policyRuns says whether the period is the one that runs.
func policyRuns(t require, policy *quota.Policy, at time.Time, a quota.Settling) bool {
	limit, period := runs(t, policy, at)
	return a.Limit == limit.ID && a.Period.Key == period.Key
}
