package reservation_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// eachRig runs a test on the embedded engine with SQLite, and on Redis with
// PostgreSQL. No job runs on either but what the test calls.
func eachRig(t *testing.T, policy string, test func(t *testing.T, r *rig)) {
	t.Run("memory, SQLite", func(t *testing.T) { test(t, newRig(t, policy)) })
	t.Run("Redis, PostgreSQL", func(t *testing.T) { test(t, newServerRig(t, policy).rig) })
}

// One dollar is reserved ten seconds before the month ends, and the call ends in
// the next one, in each way in which it can. What it used belongs to January,
// February has nothing of it, and nothing stays held in either.
func TestCallOverTheEndOfAMonth(t *testing.T) {
	const (
		dollar = quota.Amount(quota.OneUSD)
		used   = dollar / 5
	)
	refund := func(late bool) func(*rig, string) {
		return func(r *rig, id string) {
			r.tb.Helper()
			receipt := r.refund(id, reservation.Usage{Amounts: quota.Amounts{quota.MeterCost: used}})
			if receipt.Late != late || receipt.Charged[quota.MeterCost] != used {
				r.tb.Errorf("%+v, want $0.20 charged, late: %t", receipt, late)
			}
		}
	}
	unused := func(r *rig, id string) { r.refund(id, reservation.Usage{Unused: true}) }
	nothing := func(*rig, string) {}
	ways := []struct {
		name    string
		until   time.Duration // after the Reserve
		sweep   bool          // the end of the lease reaches the ledger first
		end     func(*rig, string)
		january quota.Amount // of the quota that gives back what a lease's end leaves
		kept    quota.Amount // of the quota that charges it
	}{
		{"refunded", 20 * time.Second, false, refund(false), used, used},
		{"refunded as unused", 20 * time.Second, false, unused, 0, 0},
		{"lease ends", 70 * time.Second, false, nothing, 0, dollar},
		{"refunded late", 70 * time.Second, true, refund(true), used, used},
		{"refunded late, before any sweep", 70 * time.Second, false, refund(true), used, used},
		{"refunded late as unused", 70 * time.Second, true, unused, 0, 0},
	}
	eachRig(t, `
plans:
  pro:
    quotas:
      - {name: spend, meter: cost, amount: $10, period: month}
      - {name: kept, meter: cost, amount: $10, period: month, on_expiry: charge}
accounts:
  acme: {plan: pro}
`, func(t *testing.T, r *rig) {
		r.tb = t
		for i, way := range ways {
			year := 2027 + i
			r.clock.Set(time.Date(year, 1, 31, 23, 59, 50, 0, time.UTC))
			ask := reservation.Ask{Account: "acme", Amounts: quota.Amounts{quota.MeterCost: dollar}}
			id := r.reserve(ask).Reservation
			r.clock.Add(way.until)
			if way.sweep {
				r.settled()
			}
			way.end(r, id)
			r.settled()

			months := map[string]map[string]quota.Amount{}
			for month := time.January; month <= time.February; month++ {
				key := fmt.Sprintf("m%d-%02d-01", year, month)
				rows, err := r.ledger.AccountUsage(t.Context(), "acme", key, ledger.MaxAccountUsage)
				if err != nil {
					t.Fatal(err)
				}
				months[month.String()] = map[string]quota.Amount{}
				for _, row := range rows {
					if row.Meter == quota.MeterCost && row.Used != 0 {
						months[month.String()][nameOfLimit(r, row.Limit)] += row.Used
					}
				}
			}
			january := map[string]quota.Amount{}
			for name, amount := range map[string]quota.Amount{"spend": way.january, "kept": way.kept, "totals": way.kept} {
				if amount != 0 {
					january[name] = amount
				}
			}
			if diff := cmp.Diff(map[string]map[string]quota.Amount{"January": january, "February": {}}, months); diff != "" {
				t.Errorf("%s: the ledger: %s", way.name, diff)
			}
			for _, at := range []time.Time{time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), r.clock.Now()} {
				for name, level := range levelsAt(t, r, at) {
					want := reservation.Level{Seeded: true, Used: january[name]}
					if at.Month() == time.February {
						want.Used = 0
					}
					if level.Held != 0 || level.Unposted != 0 || level.Seeded && level.Used != want.Used {
						t.Errorf("%s: the engine has %+v of %s in %v", way.name, level, name, at.Month())
					}
				}
			}
			// All of February is there to be had.
			ask.Amounts[quota.MeterCost] = 10 * dollar
			r.refund(r.reserve(ask).Reservation, reservation.Usage{Unused: true})
			r.settled()
			r.balanced()
		}
	})
}

// nameOfLimit is the name of a limit by its id, "totals" for none.
func nameOfLimit(r *rig, id string) string {
	if id == "" {
		return "totals"
	}
	limits, _ := r.policy.Current().Limits("acme")
	for _, l := range limits {
		if l.ID == id {
			return l.Limit.Name
		}
	}
	return id
}

// levelsAt asks the engine for the quotas of the account in the periods of an
// instant.
func levelsAt(t *testing.T, r *rig, at time.Time) map[string]reservation.Level {
	t.Helper()
	policy := r.policy.Current()
	limits, err := policy.Limits("acme")
	if err != nil {
		t.Fatal(err)
	}
	var holds []reservation.Hold
	for _, l := range limits {
		holds = append(holds, reservation.Hold{
			Counter: reservation.Counter{Limit: l.ID}, Kind: quota.KindQuota, Max: l.Limit.Max,
			Period: policy.Accounts["acme"].PeriodAt(l.Limit.Period, at),
		})
	}
	levels, _, err := r.engine.Levels(context.Background(), "acme", holds)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]reservation.Level{}
	for i, l := range limits {
		byName[l.Limit.Name] = levels[i]
	}
	return byName
}

// A quota that is spent is refused with the instant at which its period ends, is
// refused still a millisecond before that, and granted at it, by the account's
// own calendar.
func TestWhenAQuotaResets(t *testing.T) {
	cases := []struct {
		account, zone string
		anchor        int
		period        quota.PeriodUnit
		spent, resets string // in order of time
	}{
		{"tokyo", "Asia/Tokyo", 1, quota.PeriodMonth, "2026-07-20T03:00:00Z", "2026-07-31T15:00:00Z"},
		{"week-clock-set-back", "America/New_York", 1, quota.PeriodWeek, "2026-10-31T12:00:00Z", "2026-11-02T05:00:00Z"},
		{"anchor-31", "UTC", 31, quota.PeriodMonth, "2027-02-10T00:00:00Z", "2027-02-28T00:00:00Z"},
		{"day-of-23-hours", "Europe/Berlin", 1, quota.PeriodDay, "2027-03-28T09:00:00Z", "2027-03-28T22:00:00Z"},
		{"month-clock-set-forward", "Europe/Berlin", 1, quota.PeriodMonth, "2027-03-29T09:00:00Z", "2027-03-31T22:00:00Z"},
		{"anchor-31", "UTC", 31, quota.PeriodMonth, "2027-04-05T00:00:00Z", "2027-04-30T00:00:00Z"},
		{"day-of-25-hours", "Europe/Berlin", 1, quota.PeriodDay, "2027-10-31T09:00:00Z", "2027-10-31T23:00:00Z"},
		{"anchor-29", "UTC", 29, quota.PeriodMonth, "2028-02-10T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"leap-day", "UTC", 1, quota.PeriodDay, "2028-02-29T12:00:00Z", "2028-03-01T00:00:00Z"},
		{"anchor-29-year", "Asia/Tokyo", 29, quota.PeriodYear, "2028-03-01T12:00:00Z", "2029-01-28T15:00:00Z"},
	}
	policy := "plans:\n"
	for _, unit := range []quota.PeriodUnit{quota.PeriodDay, quota.PeriodWeek, quota.PeriodMonth, quota.PeriodYear} {
		policy += fmt.Sprintf("  %s: {quotas: [{name: budget, meter: tokens, amount: 1000, period: %s}]}\n", unit, unit)
	}
	policy += "accounts:\n"
	stated := map[string]bool{}
	for _, c := range cases {
		if !stated[c.account] {
			policy += fmt.Sprintf("  %s: {plan: %s, time_zone: %s, anchor_day: %d}\n", c.account, c.period, c.zone, c.anchor)
		}
		stated[c.account] = true
	}
	eachRig(t, policy, func(t *testing.T, r *rig) {
		r.tb = t
		for _, c := range cases {
			name := c.account + " in " + c.spent[:7]
			resets := instant(t, c.resets)
			ask := func(n quota.Amount) reservation.Ask {
				return reservation.Ask{Account: c.account, Amounts: quota.Amounts{quota.MeterTokens: n}}
			}
			refused := func() {
				t.Helper()
				no := r.refused(ask(1))
				if no.Reason != reservation.QuotaExhausted || !no.ResetsAt.Equal(resets) || !no.RetryAt.Equal(resets) || no.Remaining != 0 {
					t.Errorf("%s, at %v: %+v, want exhausted until %v", name, r.clock.Now(), no, resets)
				}
			}
			r.clock.Set(instant(t, c.spent))
			r.refund(r.reserve(ask(1000)).Reservation, used(1000))
			refused()
			r.clock.Set(resets.Add(-time.Millisecond))
			refused()
			r.clock.Set(resets)
			g := r.reserve(ask(1000))
			if level := g.Holds[0].Level; level.Remaining != 0 || level.Held != 1000 {
				t.Errorf("%s: the new period has %+v, want all of it held by this call", name, level)
			}
			r.refund(g.Reservation, reservation.Usage{Unused: true})
		}
	})
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Quotas of several periods and meters on one account: a call takes from all of
// them or from none, and each begins anew at its own instant.
func TestSeveralQuotasAtOnce(t *testing.T) {
	eachRig(t, `
plans:
  pro:
    quotas:
      - {name: day-requests, meter: requests, amount: 3, period: day}
      - {name: week-tokens, meter: tokens, amount: 1000, period: week}
      - {name: month-cost, meter: cost, amount: $1, period: month}
      - {name: year-tokens, meter: tokens, amount: 1500, period: year}
accounts:
  acme: {plan: pro}
`, func(t *testing.T, r *rig) {
		r.tb = t
		const cent = quota.Amount(quota.OneUSD) / 100
		ask := func(tokens, cents quota.Amount) reservation.Ask {
			amounts := quota.Amounts{quota.MeterTokens: tokens}
			if cents > 0 {
				amounts[quota.MeterCost] = cents * cent
			}
			return reservation.Ask{Account: "acme", Amounts: amounts}
		}
		granted := func(tokens, cents quota.Amount) {
			t.Helper()
			g := r.reserve(ask(tokens, cents))
			r.refund(g.Reservation, reservation.Usage{Amounts: ask(tokens, cents).Amounts})
		}
		refused := func(tokens, cents quota.Amount, by string, remaining quota.Amount, resets string) {
			t.Helper()
			before := r.overview(nil)
			no := r.refused(ask(tokens, cents))
			if no.Limit != by || no.Remaining != remaining || !no.ResetsAt.Equal(instant(t, resets)) || no.Reason != reservation.QuotaExhausted {
				t.Errorf("%d tokens, %d cents: %+v; want %s with %d left until %s", tokens, cents, no, by, remaining, resets)
			}
			// It may read a counter from the ledger, and let idle ones go.
			if diff := cmp.Diff(before, r.overview(nil), cmpopts.IgnoreFields(reservation.Level{}, "Seeded", "Version")); diff != "" {
				t.Errorf("a refusal by %s changed: %s", by, diff)
			}
		}
		r.clock.Set(instant(t, "2026-12-28T10:00:00Z")) // a Monday
		granted(400, 30)
		r.settled()
		refused(700, 10, "week-tokens", 600, "2027-01-04T00:00:00Z")
		refused(100, 80, "month-cost", 70*cent, "2027-01-01T00:00:00Z")
		refused(900, 90, "week-tokens", 600, "2027-01-04T00:00:00Z") // the later of two
		granted(100, 10)
		granted(100, 10)
		r.settled()
		refused(1, 0, "day-requests", 0, "2026-12-29T00:00:00Z")
		r.clock.Set(instant(t, "2026-12-29T00:00:00Z"))
		granted(400, 50) // all of the week and of the month
		r.settled()
		refused(1, 0, "week-tokens", 0, "2027-01-04T00:00:00Z")
		r.balanced()
		// Year, month and day begin anew; the week goes on.
		r.clock.Set(instant(t, "2027-01-01T00:00:00Z"))
		refused(1, 1, "week-tokens", 0, "2027-01-04T00:00:00Z")
		r.clock.Set(instant(t, "2027-01-04T00:00:00Z"))
		granted(1000, 100)
		r.settled()
		r.clock.Set(instant(t, "2027-01-11T00:00:00Z"))
		refused(600, 0, "year-tokens", 500, "2028-01-01T00:00:00Z")
		granted(500, 0)
		r.settled()
		r.balanced()
	})
}
