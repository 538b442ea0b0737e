package reservation_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// SaveGrantUses puts the uses into force, as a store's watcher does.
func (p *fixedPolicy) SaveGrantUses(_ context.Context, uses []quota.GrantUse, seen *quota.Policy) (bool, error) {
	p.uses = slices.DeleteFunc(p.uses, func(k quota.GrantUse) bool {
		return slices.ContainsFunc(uses, func(u quota.GrantUse) bool { return u.Account == k.Account && u.Grant == k.Grant })
	})
	p.uses = append(p.uses, uses...)
	with, err := seen.With(seen.Prices, p.uses)
	if err == nil {
		p.Store(with)
	}
	return true, err
}

const grantPolicy = `
plans:
  pro:
    quotas: [{name: month, meter: tokens, amount: 1000, period: month}]
accounts:
  acme:
    plan: pro
    grants:
      - {name: top-up, limit: month, amount: 500, from: 2026-01-01}
`

func (r *rig) at(text string) {
	r.tb.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		r.tb.Fatal(err)
	}
	r.clock.Set(at)
}

func (r *rig) keep(keeper *reservation.GrantKeeper) {
	r.tb.Helper()
	if err := keeper.Keep(context.Background()); err != nil {
		r.tb.Fatal(err)
	}
}

// TestTopUpOverTheMonths: January uses a part of a top-up, holds that are open
// at its end count as used until they settle, and February has the rest.
func TestTopUpOverTheMonths(t *testing.T) {
	r := newRig(t, grantPolicy)
	keeper := reservation.NewGrantKeeper(r.Broker, r.policy)
	r.at("2026-01-31T23:00:00Z")
	if got := r.overview(nil)["month"]; got.Max != 1500 || got.Granted != 500 {
		t.Errorf("January allows %d, %d of it granted; want 1500 and 500", got.Max, got.Granted)
	}
	r.refund(r.reserve(tokens(1100)).Reservation, used(1100))
	r.grantLeft("top-up", 400)
	long := 4 * time.Hour
	open := r.reserve(reservation.Ask{Account: "acme", Amounts: quota.Amounts{quota.MeterTokens: 300}, Lease: &long})
	if no := r.refused(tokens(101)); no.Remaining != 100 || no.Max != 1500 {
		t.Errorf("beyond the grant: %+v", no)
	}
	r.at("2026-02-01T00:00:00Z")
	if got := r.overview(nil)["month"]; got.Max != 1000 {
		t.Errorf("February allows %d before January is settled, want 1000", got.Max)
	}
	r.keep(keeper)
	if got := r.overview(nil)["month"]; got.Max != 1100 {
		t.Errorf("February allows %d, want 1100: January used 1100 and holds 300", got.Max)
	}
	r.refund(open.Reservation, used(50))
	r.settled()
	r.clock.Add(time.Minute)
	r.keep(keeper)
	if got := r.overview(nil)["month"]; got.Max != 1350 || got.Granted != 350 {
		t.Errorf("February allows %d, %d of it granted; want 1350 and 350: January used 1150", got.Max, got.Granted)
	}
	r.grantLeft("top-up", 350)
	last := r.reserve(tokens(1350))
	r.refused(tokens(1))
	r.grantLeft("top-up", 350) // what is held is not used yet
	r.refund(last.Reservation, used(1340))
	r.grantLeft("top-up", 10)
}

// grantLeft checks what is left of a grant of acme.
func (r *rig) grantLeft(name string, want quota.Amount) {
	r.tb.Helper()
	r.settled()
	left, err := r.GrantsLeft(context.Background(), "acme")
	if got, known := left[name]; err != nil || !known || got != want {
		r.tb.Errorf("left of %s: %v, %v; want %d", name, left, err, want)
	}
}

// TestLeftOfGrants: one that comes later has all, one that has ended has nothing,
// and each counter has its own.
func TestLeftOfGrants(t *testing.T) {
	r := newRig(t, `
plans:
  pro:
    quotas:
      - {name: month, meter: tokens, amount: 1000, period: month}
      - {name: by-model, meter: tokens, amount: 1000000, period: month, per: [account, model]}
accounts:
  acme:
    plan: pro
    grants:
      - {name: first, limit: month, amount: 100, from: 2026-01-01, priority: -1}
      - {name: rest, limit: month, amount: 300, from: 2026-01-01}
      - {name: over, limit: month, amount: 70, from: 2026-01-01, until: 2026-01-02}
      - {name: later, limit: month, amount: 80, from: 2026-01-20}
      - {name: scoped, limit: by-model, scope: model=m, amount: 90, from: 2026-01-01}
`)
	r.at("2026-01-03T00:00:00Z")
	if err := reservation.NewGrantKeeper(r.Broker, r.policy).Keep(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.refund(r.reserve(tokens(1150)).Reservation, used(1150))
	for name, want := range map[string]quota.Amount{"first": 0, "rest": 250, "over": 0, "later": 80, "scoped": 90} {
		r.grantLeft(name, want)
	}
}

// TestKeeperWaitsForTheEngine: what only the engine knows of counts too, so
// nothing is settled without it.
func TestKeeperWaitsForTheEngine(t *testing.T) {
	r := newRig(t, grantPolicy)
	keeper := reservation.NewGrantKeeper(r.Broker, r.policy)
	r.at("2026-01-31T23:59:59Z")
	r.refund(r.reserve(tokens(1200)).Reservation, used(1200))
	r.at("2026-02-01T00:00:01Z")
	r.engine.silent.Store(true)
	if err := keeper.Keep(context.Background()); err == nil {
		t.Error("settled without the engine")
	}
	r.engine.silent.Store(false)
	r.eventually("February allows 1300", func() bool {
		r.clock.Add(10 * time.Second)
		r.keep(keeper)
		return r.overview(nil)["month"].Max == 1300
	})
}

// TestPlanChangeInMidPeriod: the new amount counts at the next Reserve, and what
// was used stays used.
func TestPlanChangeInMidPeriod(t *testing.T) {
	policy := func(plan string) string {
		return `
plans:
  small: {quotas: [{name: month, meter: tokens, amount: 1000, period: month}]}
  large: {quotas: [{name: month, meter: tokens, amount: 5000, period: month}]}
accounts: {acme: {plan: ` + plan + `}}`
	}
	r := newRig(t, policy("small"))
	r.refund(r.reserve(tokens(900)).Reservation, used(900))
	r.refused(tokens(200))
	r.setPolicy(policy("large"))
	if got := r.reserve(tokens(200)).Holds[0]; got.Level.Remaining != 3900 || got.Max != 5000 {
		t.Errorf("after the upgrade: %+v, want 3900 left of 5000", got)
	}
	r.setPolicy(policy("small"))
	if no := r.refused(tokens(1)); no.Remaining != -100 || no.Reason != reservation.QuotaHeld || no.Held != 200 {
		t.Errorf("after the downgrade: %+v, want 100 beyond it", no)
	}
}

// TestSoftQuota: it never refuses, it counts, and callers see its amount.
func TestSoftQuota(t *testing.T) {
	r := newRig(t, `
plans:
  pro:
    quotas:
      - {name: wish, meter: tokens, amount: 1000, period: month, soft: true}
      - {name: budget, meter: tokens, amount: 5000, period: month}
accounts: {acme: {plan: pro}}
`)
	g := r.reserve(tokens(3000))
	if h := g.Holds[0]; h.Limit != "wish" || h.Max != 1000 || h.Level.Remaining != -2000 {
		t.Errorf("a hold beyond a soft quota: %+v, want 2000 beyond 1000", h)
	}
	dry := r.reserve(reservation.Ask{Account: "acme", Amounts: quota.Amounts{quota.MeterTokens: 100}, DryRun: true})
	if h := dry.Holds[0]; h.Level.Remaining != -2100 {
		t.Errorf("a dry run: %+v", h)
	}
	receipt := r.refund(g.Reservation, used(2500))
	if h := receipt.Holds[0]; h.Level.Remaining != -1500 {
		t.Errorf("after the Refund: %+v", h)
	}
	r.settled()
	got := r.overview(nil)["wish"]
	if !got.Soft || got.Max != 1000 || got.Level.Used != 2500 || got.Level.Remaining != -1500 {
		t.Errorf("overview: %+v", got)
	}
	if no := r.refused(tokens(3000)); no.Limit != "budget" {
		t.Errorf("the hard quota refuses: %+v", no)
	}
	r.balanced()
}
