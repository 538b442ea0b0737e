package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/test/servers"
)

// TestRefusalsExpire: what refusals leave of an account that was never granted anything
// has an end, and is one key a counter, whatever number of calls came.
func TestRefusalsExpire(t *testing.T) {
	server := servers.NewRedis(t)
	s := open(t, patient(t, server.URL()), Config{})
	admin := server.Client(t)
	ctx := within(t, time.Minute)

	// One hold takes, and another refuses, and bans.
	plan := func(scope string) []reservation.Hold {
		full := slot(1)
		full.Scope, full.Keep = "", 0
		full.Ban = quota.Ban{Refusals: 5, Within: time.Minute, For: time.Hour}
		taken := tokens(3, slowBucket)
		taken.Scope, taken.CountRefusals = scope, true
		return []reservation.Hold{full, taken}
	}
	for _, scope := range []string{"", "user=7"} {
		account := "never" + scope
		full := plan(scope)
		mustReserve(t, s, asking(account, full[0]), reservation.Granted)
		for range 4 {
			mustReserve(t, s, asking(account, full...), reservation.Refused)
		}
		if err := admin.Del(ctx, s.account(account).hash(), s.account(account).dues(), s.account(account).index()).Err(); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			mustReserve(t, s, asking(account, full...), reservation.Refused)
		}
		p := s.account(account)
		if left := admin.PTTL(ctx, p.ban(&full[0])).Val(); left < 59*time.Minute || left > time.Hour+time.Minute {
			t.Errorf("account %q: its ban is kept for %s", account, left)
		}
	}
	keys, err := admin.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if left := admin.PTTL(ctx, key).Val(); left < 0 {
			t.Errorf("%s has no expiry", key)
		}
		if size, err := admin.MemoryUsage(ctx, key).Result(); err != nil && err != redis.Nil || size > 2048 {
			t.Errorf("%s takes %d bytes, error %v", key, size, err)
		}
	}
	if len(keys) > 12 {
		t.Errorf("%d keys are left: %v", len(keys), keys)
	}
}

// TestBanSize measures what the refusals of one counter take.
func TestBanSize(t *testing.T) {
	server := servers.NewRedis(t)
	s := open(t, patient(t, server.URL()), Config{})
	for _, refusals := range []int{10, quota.MaxBanRefusals} {
		full := tokens(1, slowBucket)
		full.Amount = full.Bucket.Capacity
		full.Scope = "user=7"
		full.Ban = quota.Ban{Refusals: refusals, Within: time.Hour, For: time.Hour}
		account := fmt.Sprint("of ", refusals)
		mustReserve(t, s, asking(account, full), reservation.Granted)
		for range refusals - 1 {
			mustReserve(t, s, asking(account, full), reservation.Refused)
		}
		size := server.Client(t).MemoryUsage(t.Context(), s.account(account).ban(&full)).Val()
		t.Logf("%d refusals of %d: %d bytes", refusals-1, refusals, size)
		if size > int64(200+15*refusals) {
			t.Errorf("%d refusals take %d bytes", refusals-1, size)
		}
	}
}
