package reservation_test

import (
	"sync"
	"testing"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

func back(key string, amount quota.Amount) reservation.Spend {
	return reservation.Spend{Account: "acme", Key: key, Amounts: quota.Amounts{quota.MeterTokens: amount}}
}

// A credit gives quotas and totals back down to zero, and buckets as much up to
// their capacity; more is cut off, and a key gives once.
func TestCredit(t *testing.T) {
	onEngines(t, plainPolicy, func(t *testing.T, r *rig) {
		give := func(key string, amount, given quota.Amount) reservation.Credited {
			t.Helper()
			c, err := r.Credit(t.Context(), back(key, amount))
			if err != nil || c.Given[quota.MeterTokens] != given || c.Cut[quota.MeterTokens] != amount-given {
				t.Fatalf("%d: %+v, %v; want %d", amount, c, err, given)
			}
			return c
		}
		left := func(bucket, budget, total quota.Amount) {
			t.Helper()
			r.settled()
			now := r.overview(nil)
			if got := now["tokens"].Level.Remaining; got != bucket {
				t.Errorf("bucket: %d, want %d", got, bucket)
			}
			if got := now["budget"].Level.Remaining; got != budget {
				t.Errorf("quota: %d, want %d", got, budget)
			}
			if got := r.totals()[quota.MeterTokens]; got != total {
				t.Errorf("totals: %d, want %d", got, total)
			}
			r.balanced()
		}
		give("", 100, 0) // nothing was charged yet
		if _, err := r.Charge(t.Context(), back("", 4000)); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			want := quota.Amount(1500)
			if i > 0 {
				want = 0
			}
			c, err := r.Credit(t.Context(), back("k", 1500))
			if err != nil || c.Given[quota.MeterTokens] != want || c.Replayed != (i > 0) {
				t.Fatalf("call %d: %+v, %v", i, c, err)
			}
			if i == 0 && (len(c.Buckets) != 1 || c.Buckets[0].Level.Remaining != 7500 || c.Buckets[0].Amount != 1500) {
				t.Errorf("buckets: %+v", c.Buckets)
			}
		}
		if _, err := r.Credit(t.Context(), back("k", 1501)); err != reservation.ErrKeyReused {
			t.Errorf("another body: %v", err)
		}
		left(10_000, 47_500, 2500) // a hundred seconds later it is full again
		give("", 9999, 2500)
		left(10_000, 50_000, 0)
		if got := r.totals()[quota.MeterRequests]; got != 1 {
			t.Errorf("%d requests, want 1: tokens came back, and no call", got)
		}
		// What open reservations hold is not given back.
		held := r.reserve(tokens(3000))
		give("", 3000, 0)
		if got := r.overview(nil)["tokens"].Level.Remaining; got != 7000 {
			t.Errorf("%d are left of the bucket", got)
		}
		r.refund(held.Reservation, used(3000))
		left(10_000, 47_000, 3000)
		if _, err := r.Credit(t.Context(), reservation.Spend{Account: "acme", Amounts: quota.Amounts{quota.MeterTokens: 1}, DryRun: true}); !isInvalid(err) {
			t.Errorf("a dry run: %v", err)
		}
	})
}

// However many give back at once, no more comes back than was charged.
func TestCreditsAtOnce(t *testing.T) {
	onEngines(t, plainPolicy, func(t *testing.T, r *rig) {
		if _, err := r.Charge(t.Context(), back("", 90)); err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		var mu sync.Mutex
		var given, bucket quota.Amount
		for range 6 {
			wait.Go(func() {
				c, err := r.Credit(t.Context(), back("", 40))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				given += c.Given[quota.MeterTokens]
				for _, hold := range c.Buckets {
					bucket += hold.Amount
				}
			})
		}
		wait.Wait()
		if given != 90 || bucket != 90 {
			t.Errorf("%d and of the bucket %d came back of 90", given, bucket)
		}
		r.settled()
		if got := r.overview(nil)["budget"].Level.Remaining; got != 50_000 {
			t.Errorf("%d are left of the quota", got)
		}
		r.balanced()
	})
}

// Without the ledger nothing is given back; without the engine the ledger has it.
func TestCreditWithoutLedgerOrEngine(t *testing.T) {
	r := newRig(t, plainPolicy)
	if _, err := r.Charge(t.Context(), back("", 90)); err != nil {
		t.Fatal(err)
	}
	r.ledger.silent.Store(true)
	if _, err := r.Credit(t.Context(), back("k", 40)); err == nil {
		t.Error("answered without a ledger")
	}
	r.ledger.silent.Store(false)
	r.engine.silent.Store(true)
	c, err := r.Credit(t.Context(), back("k", 40))
	if err != nil || c.Given[quota.MeterTokens] != 40 || len(c.Buckets) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	r.engine.silent.Store(false)
	if r.metric("budgetd_reservation_credits_left_total") != 1 || r.metric("budgetd_reservation_amounts_total", "meter=tokens", "what=credited") != 40 {
		t.Error("the metrics do not tell")
	}
	if got := r.totals()[quota.MeterTokens]; got != 50 {
		t.Errorf("totals: %d", got)
	}
}
