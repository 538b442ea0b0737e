package redisstore

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/test/servers"
)

// TestEveryKeyExpires: after every kind of call no key is without an expiry,
// and none expires before what it is needed for.
func TestEveryKeyExpires(t *testing.T) {
	server := servers.NewRedis(t)
	s := open(t, patient(t, server.URL()), Config{})
	admin := server.Client(t)
	ctx := within(t, time.Minute)

	scoped := tokens(1, slowBucket)
	scoped.Scope = "user=7"
	scopedQuota := spend(1, 100)
	scopedQuota.Limit, scopedQuota.Scope = "scoped.00000000", "user=7"
	pool := slot(10)
	pool.Pool = "openai"
	holds := []reservation.Hold{tokens(1, slowBucket), scoped, slot(10), pool, spend(1, 100), scopedQuota}
	seeded(t, s, "acme", holds[4], 0)
	seeded(t, s, "acme", holds[5], 0)
	ask := func(key string) reservation.ReserveRequest {
		r := asking("acme", holds...)
		r.Key, r.Lease, r.Retention = key, time.Hour, time.Hour
		return r
	}
	held, renewed, waiting, confirmed := ask("held"), ask("renewed"), ask(""), ask("")
	renewed.Lease = time.Millisecond * 500
	for _, r := range []reservation.ReserveRequest{held, renewed, waiting, confirmed} {
		mustReserve(t, s, r, reservation.Granted)
	}
	if answer, err := s.Renew(ctx, reservation.RenewRequest{Account: "acme", ID: renewed.ID, Lease: 20 * time.Hour}); err != nil || answer.State != reservation.StateHeld {
		t.Fatalf("renew: state %d, error %v", answer.State, err)
	}
	mustRefund(t, s, closing(waiting, 1, 1, 1, 0, 0, 1, 1), reservation.RefundSettled)
	closed := closing(confirmed, 1, 1, 1, 0, 0, 1, 1)
	mustRefund(t, s, closed, reservation.RefundSettled)
	mustConfirm(t, s, confirming(closed), reservation.ConfirmAdopted)
	charge := ask("")
	charge.Settle = &reservation.Settlement{}
	mustReserve(t, s, charge, reservation.Granted)
	if _, err := s.Sweep(ctx, 100); err != nil {
		t.Fatal(err)
	}

	p := s.account("acme")
	const minute = time.Minute
	least := map[string]time.Duration{
		p.hash():                       45*time.Hour - minute, // the renewed lease and 25 h
		p.dues():                       45*time.Hour - minute,
		p.index():                      45*time.Hour - minute,
		s.marker(0):                    25*time.Hour - minute,
		p.idempotency("held"):          2*time.Hour - minute,
		p.idempotency("renewed"):       21*time.Hour - minute,
		p.closings(confirmed.ID):       2*time.Hour - minute,
		p.own('z', holds[2].Limit, ""): 20*time.Hour - minute,
		s.pool("openai").own('z', pool.Limit, ""): 20*time.Hour - minute,
		p.own('b', scoped.Limit, scoped.Scope):    24*time.Hour - minute, // a debt of one a day
		p.own('q', scopedQuota.Limit, "user=7"):   45*time.Hour - minute,
	}
	const most = 8 * 24 * time.Hour // a bucket that lacks 5 at 1 a day, and slack
	found := 0
	for key, ttl := range expiries(t, admin) {
		if ttl <= 0 || ttl > most {
			t.Errorf("%q lives for %s", key, ttl)
		}
		if want, known := least[key]; known {
			found++
			if ttl < want {
				t.Errorf("%q lives for %s, at least %s is needed", key, ttl, want)
			}
		} else {
			t.Errorf("%q is not known to the test", key)
		}
	}
	if found != len(least) {
		t.Errorf("%d of %d keys were found", found, len(least))
	}
}

// expiries lists every key's time to live; -1 for a key without.
func expiries(tb testing.TB, client *redis.Client) map[string]time.Duration {
	tb.Helper()
	ctx := within(tb, time.Minute)
	all := map[string]time.Duration{}
	for keys := client.Scan(ctx, 0, "*", 1000).Iterator(); keys.Next(ctx); {
		ttl := client.PTTL(ctx, keys.Val()).Val()
		if ttl == -2 {
			continue // gone meanwhile
		}
		all[keys.Val()] = ttl
	}
	return all
}

var idleUsers = flag.Int("redisstore.users", 2000, "users of TestNothingIsLeft; a million takes minutes")

// TestNothingIsLeft: many users under one account, each with counters of its
// own, then idle: every key goes, by its own expiry and the sweeper.
func TestNothingIsLeft(t *testing.T) {
	server := servers.NewRedis(t)
	s := open(t, patient(t, server.URL()), Config{QuotaIdle: time.Second})
	admin := server.Client(t)
	quick := quota.Bucket{Capacity: 10, Refill: 1, PerMicros: 100_000}
	seeded(t, s, "acme", spend(0, 1<<40), 0)
	for i := range *idleUsers {
		user := tokens(5, quick)
		user.Scope = fmt.Sprintf("user=%d", i)
		inFlight := slot(3)
		inFlight.Scope = user.Scope
		r := asking("acme", tokens(1, quota.Bucket{Capacity: 1 << 40, Refill: 1 << 30, PerMicros: 1}), user, inFlight, spend(1, 1<<40))
		r.Lease, r.Retention = 200*time.Millisecond, 0
		mustReserve(t, s, r, reservation.Granted)
		if i%3 == 0 {
			continue // its caller crashes
		}
		closed := closing(r, 1, 1, 2, 0, 1)
		mustRefund(t, s, closed, reservation.RefundSettled)
		if i%3 == 1 {
			continue // its broker crashes
		}
		mustConfirm(t, s, confirming(closed), reservation.ConfirmAdopted)
	}
	for key, ttl := range expiries(t, admin) {
		if ttl == -1 {
			t.Fatalf("%q has no expiry", key)
		}
	}
	// Two in three users left something that is finished here, one by one.
	eventuallyIn(t, 30*time.Second+time.Duration(*idleUsers)*time.Millisecond, "nothing is left", func(ctx context.Context) bool {
		for {
			answer, err := s.Sweep(ctx, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, pending := range answer.Pending {
				r := pending.Record
				verdict, err := s.Confirm(ctx, reservation.ConfirmRequest{
					Account: pending.Account, ID: pending.ID, Rank: r.Rank, Body: r.Body, Actual: r.Actual, ClosedAt: r.ClosedAt,
				})
				if err != nil || verdict != reservation.ConfirmAdopted {
					t.Fatalf("confirm: verdict %d, error %v", verdict, err)
				}
			}
			if !answer.More {
				break
			}
		}
		left := slices.DeleteFunc(admin.Keys(ctx, "*").Val(), func(key string) bool { return key == s.marker(0) })
		return len(left) == 0
	})
}
