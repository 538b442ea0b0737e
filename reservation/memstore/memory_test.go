package memstore

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/storetest"
)

func newStore(tb testing.TB, clock *storetest.Clock) *Store {
	tb.Helper()
	s, err := New(Config{Clock: clock.Now})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func bucketHold(limit, scope string, amount quota.Amount) reservation.Hold {
	return reservation.Hold{
		Counter: reservation.Counter{Limit: limit, Scope: scope}, Kind: quota.KindBucket, Amount: amount,
		Bucket: quota.Bucket{Capacity: 1000, Refill: 1, PerMicros: 1000}, OnExpiry: quota.ExpiryGiveBack,
	}
}

func slotHold(limit, scope string) reservation.Hold {
	return reservation.Hold{
		Counter: reservation.Counter{Limit: limit, Scope: scope}, Kind: quota.KindSlots, Amount: 1, Max: 1_000_000, OnExpiry: quota.ExpiryGiveBack,
	}
}

func quotaHold(clock *storetest.Clock, limit, scope string, amount quota.Amount) reservation.Hold {
	return reservation.Hold{
		Counter: reservation.Counter{Limit: limit, Scope: scope}, Kind: quota.KindQuota, Amount: amount, Max: 1_000_000, OnExpiry: quota.ExpiryGiveBack,
		Period: quota.Account{TimeZone: "UTC"}.PeriodAt(quota.PeriodDay, clock.Now()),
	}
}

// sweepAndConfirm does what the sweeper and the ledger do, until nothing is due.
func sweepAndConfirm(tb testing.TB, s *Store, lease, retention time.Duration) (confirmed int) {
	tb.Helper()
	for {
		answer, err := s.Sweep(tb.Context(), 1000)
		if err != nil {
			tb.Fatal(err)
		}
		for _, p := range answer.Pending {
			verdict, err := s.Confirm(tb.Context(), reservation.ConfirmRequest{
				Account: p.Account, ID: p.ID, Lease: lease, Retention: retention, Rank: p.Record.Rank, Body: p.Record.Body,
				Actual: p.Record.Actual, ClosedAt: p.Record.ClosedAt,
			})
			if err != nil || verdict != reservation.ConfirmAdopted {
				tb.Fatalf("Confirm: verdict %d, %v", verdict, err)
			}
			confirmed++
		}
		if !answer.More {
			return confirmed
		}
	}
}

// TestMillionIdleUsersLeaveNothing: a million users of one account make a call
// each, a wave after the other. When a wave is idle and its records have had
// their time, nothing of it is left, and in the end the memory is free.
func TestMillionIdleUsersLeaveNothing(t *testing.T) {
	const wave = 50_000
	clock := storetest.NewClock()
	s := newStore(t, clock)
	before := heap()
	for first := 0; first < idleUsers; first += wave {
		for i := first; i < first+wave; i++ {
			scope := fmt.Sprintf("user=%d", i)
			q := reservation.ReserveRequest{
				Account: "acme", ID: reservation.NewID(clock.Now()), Lease: time.Second, Retention: time.Minute,
				Holds: []reservation.Hold{bucketHold("tokens", scope, 10), slotHold("slow", scope)},
			}
			if i%10 == 0 {
				q.Key = scope
			}
			answer, err := s.Reserve(t.Context(), q)
			if err != nil || answer.Verdict != reservation.Granted {
				t.Fatalf("user %d: verdict %d, %v", i, answer.Verdict, err)
			}
			if i%1000 == 0 {
				clock.Add(time.Millisecond)
			}
		}
		if n := s.sizes(); n.counters != 2*wave || n.open != wave {
			t.Fatalf("at work: %+v", n)
		}
		clock.Add(time.Second)
		if n := sweepAndConfirm(t, s, time.Second, time.Minute); n != wave {
			t.Fatalf("%d closings were confirmed, not %d", n, wave)
		}
		if n := s.sizes(); n.kept != wave {
			t.Fatalf("confirmed: %+v", n)
		}
		clock.Add(2 * time.Minute)
		sweepAndConfirm(t, s, time.Second, time.Minute)
		if n := s.sizes(); n != (sizes{}) {
			t.Fatalf("idle: %+v", n)
		}
	}
	// What stays are a few free records; a wave took tens of megabytes.
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("%d MB are still in use", grown>>20)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestTrafficCleansUp: without any Sweep an account under traffic does not
// grow: each call forgets at least as much as a call leaves behind.
func TestTrafficCleansUp(t *testing.T) {
	clock := storetest.NewClock()
	s := newStore(t, clock)
	const lease, retention = time.Second, 10 * time.Second
	most := 0
	for i := range 20_000 {
		q := reservation.ReserveRequest{
			Account: "acme", ID: reservation.NewID(clock.Now()), Lease: lease, Retention: retention,
			Holds: []reservation.Hold{bucketHold("tokens", fmt.Sprintf("user=%d", i), 1)},
		}
		if _, err := s.Reserve(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		settle(t, s, q)
		clock.Add(10 * time.Millisecond)
		n := s.sizes()
		most = max(most, n.kept+n.waiting+n.open, n.counters)
	}
	// 11 s of records at one in 10 ms.
	if most > 1200 {
		t.Errorf("%d records or counters were there at once", most)
	}
	clock.Add(time.Minute)
	sweepAndConfirm(t, s, lease, retention)
	if n := s.sizes(); n != (sizes{}) {
		t.Errorf("idle: %+v", n)
	}
}

// settle refunds and confirms.
func settle(tb testing.TB, s *Store, q reservation.ReserveRequest) {
	tb.Helper()
	actual := make([]quota.Amount, len(q.Holds))
	answer, err := s.Refund(tb.Context(), reservation.RefundRequest{
		Account: q.Account, ID: q.ID, Lease: q.Lease, Retention: q.Retention, Actual: actual,
	})
	if err != nil || answer.Verdict != reservation.RefundSettled {
		tb.Fatalf("Refund: verdict %d, %v", answer.Verdict, err)
	}
	confirm(tb, s, q, answer.Record)
}

func confirm(tb testing.TB, s *Store, q reservation.ReserveRequest, r reservation.Record) {
	tb.Helper()
	verdict, err := s.Confirm(tb.Context(), reservation.ConfirmRequest{
		Account: q.Account, ID: q.ID, Lease: q.Lease, Retention: q.Retention, Rank: ledger.RankRefunded, Body: r.Body, Actual: r.Actual, ClosedAt: r.ClosedAt,
	})
	if err != nil || verdict != reservation.ConfirmAdopted {
		tb.Fatalf("Confirm: verdict %d, %v", verdict, err)
	}
}

// TestEveryKindVanishes: pools, debt, tickets, quotas and keys go when nothing
// needs them, and not before.
func TestEveryKindVanishes(t *testing.T) {
	clock := storetest.NewClock()
	s := newStore(t, clock)
	pooled, pooledSlot := bucketHold("tpm", "", 10), slotHold("workers", "")
	pooled.Pool, pooledSlot.Pool = "openai", "openai"
	daily := quotaHold(clock, "daily", "user=7", 5)
	q := reservation.ReserveRequest{
		Account: "acme", ID: reservation.NewID(clock.Now()), Lease: time.Second, Retention: time.Second, Key: "key",
		Holds: []reservation.Hold{bucketHold("tokens", "", 10), slotHold("slow", ""), daily, pooled, pooledSlot},
	}
	answer, err := s.Reserve(t.Context(), q)
	if err != nil || answer.Verdict != reservation.Unseeded {
		t.Fatalf("verdict %d, %v", answer.Verdict, err)
	}
	if n := s.sizes(); n != (sizes{accounts: 1, counters: 1, due: 1}) {
		t.Fatalf("a ticket alone: %+v", n)
	}
	ok, err := s.Seed(t.Context(), reservation.SeedRequest{Account: "acme", Counter: daily.Counter, Period: daily.Period, Ticket: answer.Tickets[0].Ticket})
	if err != nil || !ok {
		t.Fatalf("Seed: %v, %v", ok, err)
	}
	if answer, err = s.Reserve(t.Context(), q); err != nil || answer.Verdict != reservation.Granted {
		t.Fatalf("verdict %d, %v", answer.Verdict, err)
	}
	// An overrun: the bucket of 1,000 at 1 a millisecond is full again 5 s later.
	refund, err := s.Refund(t.Context(), reservation.RefundRequest{
		Account: "acme", ID: q.ID, Lease: q.Lease, Retention: q.Retention, Actual: []quota.Amount{5000, 0, 5, 0, 0},
	})
	if err != nil || refund.Verdict != reservation.RefundSettled {
		t.Fatalf("Refund: verdict %d, %v", refund.Verdict, err)
	}
	confirm(t, s, q, refund.Record)
	sweep := func() sizes {
		t.Helper()
		sweepAndConfirm(t, s, q.Lease, q.Retention)
		return s.sizes()
	}
	// A record is kept at least MintSkew, for scripts that run late.
	clock.Add(reservation.MintSkew)
	if n := sweep(); n.kept != 1 || n.pools != 1 || n.counters != 5 {
		t.Fatalf("while it may be asked for: %+v", n)
	}
	clock.Add(time.Microsecond)
	// The bucket has no debt any more; the quota's day is not over.
	if n := sweep(); n != (sizes{accounts: 1, counters: 1, due: 1}) {
		t.Fatalf("after the record: %+v", n)
	}
	clock.Add(59 * time.Minute)
	if n := sweep(); n.counters != 1 {
		t.Fatalf("not idle for an hour yet: %+v", n)
	}
	clock.Add(time.Minute)
	if n := sweep(); n != (sizes{}) {
		t.Fatalf("idle for an hour: %+v", n)
	}
}

// TestDebtOutlivesTheRecord: a bucket in debt stays until it is full again.
func TestDebtOutlivesTheRecord(t *testing.T) {
	clock := storetest.NewClock()
	s := newStore(t, clock)
	hold := bucketHold("tokens", "", 10)
	q := reservation.ReserveRequest{
		Account: "acme", ID: reservation.NewID(clock.Now()), Lease: time.Second, Holds: []reservation.Hold{hold},
	}
	if _, err := s.Reserve(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	refund, err := s.Refund(t.Context(), reservation.RefundRequest{Account: "acme", ID: q.ID, Lease: q.Lease, Actual: []quota.Amount{60_000}})
	if err != nil {
		t.Fatal(err)
	}
	confirm(t, s, q, refund.Record)
	clock.Add(59*time.Second + 999_999*time.Microsecond)
	sweepAndConfirm(t, s, q.Lease, 0)
	levels, _, err := s.Levels(t.Context(), "acme", q.Holds)
	if err != nil || levels[0].Remaining != 999 {
		t.Fatalf("levels %+v, %v", levels, err)
	}
	clock.Add(time.Microsecond)
	sweepAndConfirm(t, s, q.Lease, 0)
	if n := s.sizes(); n != (sizes{}) {
		t.Fatalf("after the debt: %+v", n)
	}
}

// TestKeyIsFreeAfterRetention: once lease end and retention have passed, the
// key is new again, even while its record still waits for the ledger.
func TestKeyIsFreeAfterRetention(t *testing.T) {
	clock := storetest.NewClock()
	s := newStore(t, clock)
	ask := func() reservation.ReserveVerdict {
		t.Helper()
		answer, err := s.Reserve(t.Context(), reservation.ReserveRequest{
			Account: "acme", ID: reservation.NewID(clock.Now()), Lease: time.Second, Retention: 10 * time.Second, Key: "key",
			Holds: []reservation.Hold{bucketHold("tokens", "", 10)},
		})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Verdict
	}
	if v := ask(); v != reservation.Granted {
		t.Fatalf("verdict %d", v)
	}
	clock.Add(11*time.Second - time.Microsecond)
	if v := ask(); v != reservation.Replayed {
		t.Fatalf("a microsecond before: verdict %d", v)
	}
	clock.Add(time.Microsecond)
	if v := ask(); v != reservation.Granted {
		t.Fatalf("at the end: verdict %d", v)
	}
	// The first record's end must not take the second's key away.
	sweepAndConfirm(t, s, time.Second, 10*time.Second)
	clock.Add(reservation.MintSkew)
	sweepAndConfirm(t, s, time.Second, 10*time.Second)
	if v := ask(); v != reservation.Replayed {
		t.Fatalf("after the first was forgotten: verdict %d", v)
	}
}

// TestIdleQuotasGo: a quota per user, met by users who only try, leaves nothing
// once they are idle, long before its period ends.
func TestIdleQuotasGo(t *testing.T) {
	clock := storetest.NewClock()
	s := newStore(t, clock)
	for i := range 1000 {
		q := reservation.ReserveRequest{
			Account: "acme", ID: reservation.NewID(clock.Now()), Lease: time.Second, Retention: time.Minute,
			Holds: []reservation.Hold{quotaHold(clock, "daily", fmt.Sprintf("user=%d", i), 10)},
		}
		answer, err := s.Reserve(t.Context(), q)
		if err != nil || answer.Verdict != reservation.Unseeded {
			t.Fatalf("user %d: verdict %d, %v", i, answer.Verdict, err)
		}
		if i%2 == 0 {
			continue // never comes back
		}
		ok, err := s.Seed(t.Context(), reservation.SeedRequest{
			Account: "acme", Counter: q.Holds[0].Counter, Period: q.Holds[0].Period, Ticket: answer.Tickets[0].Ticket,
		})
		if err != nil || !ok {
			t.Fatalf("Seed: %v, %v", ok, err)
		}
		if answer, err = s.Reserve(t.Context(), q); err != nil || answer.Verdict != reservation.Granted {
			t.Fatalf("user %d, seeded: verdict %d, %v", i, answer.Verdict, err)
		}
	}
	clock.Add(time.Minute)
	sweepAndConfirm(t, s, time.Second, time.Minute)
	if n := s.sizes(); n.counters != 1000 {
		t.Fatalf("after a minute: %+v", n)
	}
	clock.Add(time.Hour)
	for range 5 {
		sweepAndConfirm(t, s, time.Second, time.Minute)
	}
	if n := s.sizes(); n != (sizes{}) {
		t.Fatalf("after an hour: %+v", n)
	}
}
