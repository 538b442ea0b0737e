package reservation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// sweep does one round.
func (r *rig) sweep() {
	r.tb.Helper()
	if _, err := r.sweeper.Sweep(context.Background()); err != nil {
		r.tb.Fatalf("Sweep: %v", err)
	}
}

// quotaLevel is the budget's counter as the engine has it, seeded.
func (r *rig) quotaLevel() reservation.Level {
	r.tb.Helper()
	return r.overview(nil)["budget"].Level
}

// seed has the quota's counter seeded and takes nothing for long.
func (r *rig) seed() {
	r.tb.Helper()
	r.refund(r.reserve(tokens(1)).Reservation, reservation.Usage{Unused: true})
}

func TestOpenReservationsAreBroughtBack(t *testing.T) {
	r := newRig(t, plainPolicy)
	r.sweep() // sees the engine's data for the first time
	slow := tokens(1000)
	slow.Labels, slow.Key = map[string]string{"route": "slow"}, "k"
	open := r.reserve(slow)
	renewed := r.reserve(tokens(2000))
	closed := r.reserve(tokens(500))
	ending := r.reserve(tokens(700))
	r.clock.Add(30 * time.Second)
	if _, err := r.Renew(context.Background(), renewed.Reservation, reservation.Renewal{}); err != nil {
		t.Fatal(err)
	}
	r.refund(closed.Reservation, used(500))
	if got := r.metric("budgetd_reservation_registered_reservations"); got != 3 {
		t.Errorf("%v reservations are registered, want 3", got)
	}

	r.engine.swap(r.newEngine())
	r.clock.Add(10 * time.Second)
	r.sweep()
	if got := r.metric("budgetd_reservation_restored_total", "result=restored"); got != 3 {
		t.Errorf("%v reservations were restored, want 3", got)
	}
	r.seed()
	if level := r.quotaLevel(); level.Held != 3700 || level.Used != 500 {
		t.Errorf("%+v, want 3,700 held and 500 used", level)
	}
	if slots := r.overview(map[string]string{"route": "slow"})["slow"].Level; slots.Held != 1 {
		t.Errorf("%d slots are taken, want 1", slots.Held)
	}
	// The key still stands for its reservation.
	if again := r.reserve(slow); !again.Replayed || again.Reservation != open.Reservation || again.State != reservation.StateHeld {
		t.Errorf("the key's replay: %+v", again)
	}
	// A second sweep finds nothing new.
	r.sweep()
	if got := r.metric("budgetd_reservation_engine_losses_total"); got != 1 {
		t.Errorf("%v losses were seen, want 1", got)
	}

	// Each lease ends when it would have ended without the loss.
	r.clock.Add(25 * time.Second) // 65 s after the grants, 35 s after the Renew
	r.sweep()
	if level := r.quotaLevel(); level.Held != 2000 {
		t.Errorf("%d held, want the 2,000 of the renewed one", level.Held)
	}
	r.refund(renewed.Reservation, used(2000))
	if receipt := r.refund(ending.Reservation, used(700)); !receipt.Late {
		t.Errorf("a Refund after the lease's end is not late: %+v", receipt)
	}
	r.settled()
	if got := r.totals()[quota.MeterTokens]; got != 3200 {
		t.Errorf("the ledger holds %d tokens, want 3,200", got)
	}
	r.balanced()
}

// A Refund on another broker is not seen by the one that granted: what it
// brings back is settled by the ledger's closing when the lease ends.
func TestBroughtBackThoughClosedElsewhere(t *testing.T) {
	r := newRig(t, plainPolicy)
	r.sweep()
	g := r.reserve(tokens(3000))
	first := r.Broker
	r.start(r.ledger)
	r.refund(g.Reservation, used(1000))
	r.settledWithin(0)
	r.engine.swap(r.newEngine())
	if _, err := reservation.NewSweeper(first).Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.seed()
	if level := r.quotaLevel(); level.Held != 3000 || level.Used != 1000 {
		t.Errorf("%+v, want the hold back until its lease ends", level)
	}
	r.clock.Add(time.Minute)
	r.settled()
	if level := r.quotaLevel(); level.Held != 0 || level.Used != 1000 {
		t.Errorf("%+v, want nothing held and the 1,000 that the ledger knows", level)
	}
	r.balanced()
}

func TestBringingBackGoesOnUntilAllAreBack(t *testing.T) {
	r := newRig(t, plainPolicy)
	r.sweep()
	r.reserve(tokens(1000))
	r.engine.swap(r.newEngine())
	r.engine.noRestore.Store(true)
	r.sweep()
	if got := r.metric("budgetd_reservation_restored_total", "result=failed"); got != 1 {
		t.Errorf("%v tries failed, want 1", got)
	}
	r.engine.noRestore.Store(false)
	r.sweep()
	r.seed()
	if level := r.quotaLevel(); level.Held != 1000 {
		t.Errorf("%+v, want 1,000 held", level)
	}
}

func TestRegistryIsBounded(t *testing.T) {
	r := newRig(t, plainPolicy)
	r.config.Registered = 3
	r.start(r.ledger)
	for range 5 {
		r.reserve(tokens(10))
		r.clock.Add(time.Second)
	}
	if got := r.metric("budgetd_reservation_registered_reservations"); got != 3 {
		t.Errorf("%v are registered, want 3", got)
	}
	if got := r.metric("budgetd_reservation_unregistered_total"); got != 2 {
		t.Errorf("%v found no room, want 2", got)
	}
	r.clock.Add(time.Hour)
	r.sweep()
	if got := r.metric("budgetd_reservation_registered_reservations"); got != 0 {
		t.Errorf("%v are registered after their leases, want none", got)
	}
}

func TestRenewBringsBack(t *testing.T) {
	r := newRig(t, plainPolicy)
	g := r.reserve(tokens(3000))
	r.start(r.ledger) // another broker: it knows nothing of the reservation but its token
	r.engine.swap(r.newEngine())
	r.clock.Add(59 * time.Second)
	end, err := r.Renew(context.Background(), g.Reservation, reservation.Renewal{})
	if err != nil || !end.ExpiresAt.Equal(r.clock.Now().Add(time.Minute)) {
		t.Fatalf("until %s, %v; want a minute from now", end.ExpiresAt, err)
	}
	r.seed()
	if level := r.quotaLevel(); level.Held != 3000 {
		t.Errorf("%+v, want 3,000 held", level)
	}
	r.refund(g.Reservation, used(2000))
	r.settled()
	r.balanced()
	if got := r.totals()[quota.MeterTokens]; got != 2000 {
		t.Errorf("the ledger holds %d tokens, want 2,000", got)
	}
}

func TestRenewDoesNotRevive(t *testing.T) {
	r := newRig(t, plainPolicy)
	g := r.reserve(tokens(3000))
	r.engine.swap(r.newEngine())
	r.clock.Add(time.Minute)
	if end, err := r.Renew(context.Background(), g.Reservation, reservation.Renewal{}); !errors.Is(err, reservation.ErrNotHeld) {
		t.Errorf("renewed until %s after the lease had ended: %v", end.ExpiresAt, err)
	}
	settled := r.reserve(tokens(100))
	r.refund(settled.Reservation, used(100))
	if _, err := r.Renew(context.Background(), settled.Reservation, reservation.Renewal{}); !errors.Is(err, reservation.ErrNotHeld) {
		t.Errorf("a settled reservation: %v", err)
	}
}

// A Refund of what the engine forgot is posted once, to its period and counters.
func TestForgottenIsPostedOnce(t *testing.T) {
	const scoped = `
plans:
  pro:
    quotas:
      - {name: budget, meter: tokens, amount: 50000, period: month}
      - {name: daily, meter: tokens, amount: 9000, period: day, per: [user]}
accounts:
  acme: {plan: pro}
`
	for name, lose := range map[string]func(r *serverRig){
		"FLUSHALL": func(r *serverRig) { r.redis.FlushAll() },
		"older dump": func(r *serverRig) {
			r.redis.Kill()
			r.redis.Restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newServerRig(t, scoped, "--dbfilename", "dump.rdb")
			r.sweep()
			r.clock.Set(time.Date(2026, 11, 30, 23, 59, 30, 0, time.UTC))
			ask := tokens(4000)
			ask.Labels = map[string]string{"user": "u1"}
			settledLater, forgotten, late := r.reserve(ask), r.reserve(tokens(2000)), r.reserve(tokens(1000))
			if err := r.redis.Client(t).Save(context.Background()).Err(); err != nil {
				t.Fatal(err)
			}
			r.refund(settledLater.Reservation, used(1500)) // open again in the dump
			r.settledWithin(0)
			lose(r)
			r.start(r.ledger) // a broker that has nothing registered

			r.clock.Add(time.Minute) // December
			for range 3 {
				r.refund(forgotten.Reservation, used(500))
				r.refund(settledLater.Reservation, used(1500))
			}
			if _, err := r.Refund(context.Background(), settledLater.Reservation, used(1)); !errors.Is(err, reservation.ErrConflict) {
				t.Errorf("another body: %v, want a conflict", err)
			}
			r.settled()
			if receipt := r.refund(late.Reservation, used(900)); !receipt.Late {
				t.Errorf("the third Refund is not late: %+v", receipt)
			}
			r.settled()
			rows, err := r.ledger.AccountUsage(context.Background(), "acme", "", 100)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]quota.Amount{}
			for _, row := range rows {
				if row.Meter == quota.MeterTokens && row.Used != 0 {
					got[fmt.Sprintf("%s %s %q", row.Period, limitName(row.Limit), row.Scope)] = row.Used
				}
			}
			want := map[string]quota.Amount{
				`m2026-11-01 totals ""`: 2900, `m2026-11-01 budget ""`: 2900,
				`d2026-11-30 daily "user"`: 1400, `d2026-11-30 daily "user=u1"`: 1500,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("usage rows (-want +got):\n%s", diff)
			}
			r.balanced()
		})
	}
}

// limitName is a limit's name without the hash of its meaning.
func limitName(limit string) string {
	if limit == "" {
		return "totals"
	}
	name, _, _ := strings.Cut(limit, ".")
	return name
}
