package reservation_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// damagedStore is an engine in which one account's state can't be read.
type damagedStore struct {
	reservation.Store
	damaged string
}

func (s damagedStore) Levels(ctx context.Context, account string, holds []reservation.Hold) ([]reservation.Level, time.Time, error) {
	if account == s.damaged {
		return nil, time.Time{}, errors.New("the account's state is damaged")
	}
	return s.Store.Levels(ctx, account, holds)
}

// TestDamagedAccountKeepsNoneBack: grants of the others are settled.
func TestDamagedAccountKeepsNoneBack(t *testing.T) {
	r := newRig(t, `
plans:
  pro:
    quotas: [{name: month, meter: tokens, amount: 1000, period: month}]
accounts:
  acme: {plan: pro, grants: [{name: top-up, limit: month, amount: 500, from: 2026-01-01}]}
  damaged: {plan: pro, grants: [{name: top-up, limit: month, amount: 500, from: 2026-01-01}]}
`)
	keeper := reservation.NewGrantKeeper(r.Broker, r.policy)
	r.engine.swap(damagedStore{Store: r.engine.current(), damaged: "damaged"})
	r.at("2026-02-01T00:00:01Z")
	for range 2 {
		if err := keeper.Keep(context.Background()); err == nil {
			t.Error("nobody hears of the damaged account")
		}
	}
	if got := r.overview(nil)["month"]; got.Max != 1500 {
		t.Errorf("acme is allowed %d in February, want 1500", got.Max)
	}
}

// countingStore counts how often the engine is asked.
type countingStore struct {
	reservation.Store
	asked atomic.Int64
	stop  func(asked int64)
}

func (s *countingStore) Levels(ctx context.Context, account string, holds []reservation.Hold) ([]reservation.Level, time.Time, error) {
	s.stop(s.asked.Add(1))
	if ctx.Err() != nil {
		return nil, time.Time{}, ctx.Err()
	}
	return s.Store.Levels(ctx, account, holds)
}

// TestManyGrantsAreSettledInPieces: what was worked out when the time is over is
// kept, and the next look goes on from there. When nothing is due, the engine is
// asked for its clock alone.
func TestManyGrantsAreSettledInPieces(t *testing.T) {
	r := newRig(t, grantPolicy)
	was := r.policy.Current()
	var accounts []quota.Account
	for i := range 700 {
		account := was.Accounts["acme"]
		account.Name = fmt.Sprintf("a%d", i)
		accounts = append(accounts, account)
	}
	policy, err := quota.NewPolicy([]quota.Plan{was.Plans["pro"]}, nil, accounts, 2)
	if err != nil {
		t.Fatal(err)
	}
	r.policy.Store(policy)
	settled := func() int {
		n := 0
		for name := range r.policy.Current().Accounts {
			for _, use := range r.policy.Current().GrantUses(name, "top-up") {
				if use.State == quota.UseSettled {
					n++
				}
			}
		}
		return n
	}
	keeper := reservation.NewGrantKeeper(r.Broker, r.policy)
	r.at("2026-02-01T00:00:01Z")
	engine := r.engine.current()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.engine.swap(&countingStore{Store: engine, stop: func(asked int64) {
		if asked == 1200 { // two times an account, and one for the clock
			cancel()
		}
	}})
	if err := keeper.Keep(ctx); err == nil {
		t.Error("a look that was cut off says so")
	}
	if n := settled(); n < 500 || n == 700 {
		t.Errorf("%d accounts of 700 are settled, want those of the first piece and not all", n)
	}
	counted := &countingStore{Store: engine, stop: func(int64) {}}
	r.engine.swap(counted)
	r.keep(keeper)
	if n := settled(); n != 700 {
		t.Errorf("%d accounts of 700 are settled", n)
	}
	r.keep(keeper)
	counted.asked.Store(0)
	r.clock.Add(time.Second)
	r.keep(keeper)
	if asked := counted.asked.Load(); asked != 1 {
		t.Errorf("with nothing due the engine was asked %d times, want once", asked)
	}
}

// TestClockOfOneNode: a node whose clock is ahead or behind neither settles a
// period that has not ended nor fails to settle one that has.
func TestClockOfOneNode(t *testing.T) {
	r := newRig(t, grantPolicy)
	for _, months := range []int{2, -2} {
		r.setPolicy(grantPolicy)
		r.policy.uses = nil
		r.at("2026-01-05T00:00:00Z")
		wrong := reservation.NewBroker(r.Broker.Parts, reservation.Config{
			Now: func() time.Time { return r.clock.Now().AddDate(0, months, 0) }, Deadline: 5 * time.Second, Logger: r.log(),
		})
		defer wrong.Close(context.Background())
		keeper := reservation.NewGrantKeeper(wrong, r.policy)
		for _, at := range []string{"2026-01-05T00:00:00Z", "2026-02-10T00:00:00Z"} {
			r.at(at)
			r.keep(keeper)
			uses := r.policy.Current().GrantUses("acme", "top-up")
			if open := uses[len(uses)-1]; open.State != quota.UseOpen || open.Period != "m"+at[:7]+"-01" {
				t.Errorf("at %s, by a clock %d months off: %+v", at, months, uses)
			}
		}
	}
}

// TestUpgradeGivesNothingBack: on the broker, its engine and its ledger, a larger
// plan on the first day of a month is none of the month before.
func TestUpgradeGivesNothingBack(t *testing.T) {
	policy := func(amount int) string {
		return fmt.Sprintf(`
plans: {pro: {quotas: [{name: month, meter: tokens, amount: %d, period: month}]}}
accounts: {acme: {plan: pro, grants: [{name: top-up, limit: month, amount: 500, from: 2026-01-01}]}}`, amount)
	}
	r := newRig(t, policy(1000))
	keeper := reservation.NewGrantKeeper(r.Broker, r.policy)
	r.at("2026-01-31T12:00:00Z")
	r.keep(keeper)
	r.refund(r.reserve(tokens(1500)).Reservation, used(1500))
	r.settled()
	r.at("2026-02-01T00:00:01Z")
	r.keep(keeper)
	r.setPolicy(policy(2000))
	with, err := r.policy.Current().With(nil, r.policy.uses)
	if err != nil {
		t.Fatal(err)
	}
	r.policy.Store(with)
	for range 2 {
		r.clock.Add(2 * time.Minute)
		r.keep(keeper)
	}
	if got := r.overview(nil)["month"]; got.Max != 2000 {
		t.Errorf("February allows %d, want the plan's 2000: January used the top-up up", got.Max)
	}
}

// TestGrantsHearOfCorrections: a price that is corrected weeks after the month's
// end changes what is left of a grant.
func TestGrantsHearOfCorrections(t *testing.T) {
	r := newRig(t, `
plans:
  pro:
    quotas: [{name: spend, meter: cost, amount: $1, period: month}]
accounts:
  acme: {plan: pro, grants: [{name: top-up, limit: spend, amount: $1, from: 2026-01-01}]}
`)
	keeper := reservation.NewGrantKeeper(r.Broker, r.policy)
	left := func(what string, want float64) {
		t.Helper()
		r.eventually(what, func() bool {
			r.clock.Add(time.Second)
			r.keep(keeper)
			return r.overview(nil)["spend"].Granted == quota.Amount(want*float64(quota.OneUSD))
		})
	}
	r.at("2026-01-31T12:00:00Z")
	r.priceModel("1000", "1000")
	r.refund(r.reserve(call("our-model", nil)).Reservation, classes(1000, 1000)) // $2: the grant is used up
	r.settled()
	r.at("2026-02-01T00:00:01Z")
	left("January used it up", 0)
	r.at("2026-02-20T00:00:00Z")
	r.keep(keeper)
	r.priceModel("500", "500") // January's call cost $1
	now := r.clock.Now()
	r.correct(reservation.PriceCorrection{Model: "our-model", From: now.AddDate(0, -1, 0), To: now, Reason: "wrong price", By: "ops"})
	left("January used none of it", 1)
}
