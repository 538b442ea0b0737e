package memstore

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/storetest"
)

func TestClosedStoreIsUnavailable(t *testing.T) {
	s := newStore(t, storetest.NewClock())
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Ping(t.Context()); !errors.Is(err, reservation.ErrUnavailable) {
		t.Errorf("Ping: %v", err)
	}
	if _, err := s.Sweep(t.Context(), 1); !errors.Is(err, reservation.ErrUnavailable) {
		t.Errorf("Sweep: %v", err)
	}
}

func TestClockDefaultsToTheSystems(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := time.Now().Truncate(time.Microsecond)
	_, now, err := s.Levels(t.Context(), "acme", nil)
	if err != nil || now.Before(before) || now.After(time.Now()) {
		t.Fatalf("now %s, %v", now, err)
	}
}

func TestMetrics(t *testing.T) {
	clock := storetest.NewClock()
	registry := prometheus.NewPedanticRegistry()
	s, err := New(Config{Clock: clock.Now, Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, account := range []string{"acme", "globex"} {
		q := reservation.ReserveRequest{
			Account: account, ID: reservation.NewID(clock.Now()), Lease: time.Second,
			Holds: []reservation.Hold{bucketHold("tokens", "", 1), slotHold("slow", "")},
		}
		if _, err := s.Reserve(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		if account == "acme" {
			settle(t, s, q)
		}
	}
	const want = `
# HELP budgetd_memstore_accounts Accounts that the memory engine has state of.
# TYPE budgetd_memstore_accounts gauge
budgetd_memstore_accounts 2
# HELP budgetd_memstore_counters Counters of limits in the memory engine, pools included.
# TYPE budgetd_memstore_counters gauge
budgetd_memstore_counters 4
# HELP budgetd_memstore_reservations Reservations in the memory engine: held ones, closed ones that wait for the ledger, and confirmed ones that are remembered.
# TYPE budgetd_memstore_reservations gauge
budgetd_memstore_reservations{state="confirmed"} 1
budgetd_memstore_reservations{state="held"} 1
budgetd_memstore_reservations{state="waiting"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) != 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	if _, err := New(Config{Registerer: registry}); err == nil {
		t.Error("a second engine on one registry: no error")
	}
}

// TestErrorsNameTheField: a broker's mistake is told with the field and the
// bound, and what is right with a zero value is accepted.
func TestErrorsNameTheField(t *testing.T) {
	clock := storetest.NewClock()
	s := newStore(t, clock)
	for want, spoil := range map[string]func(*reservation.ReserveRequest){
		"account: it is empty":                       func(q *reservation.ReserveRequest) { q.Account = "" },
		"lease: 0s is not between 1ms and 24h":       func(q *reservation.ReserveRequest) { q.Lease = 0 },
		"retention: 48h0m0s is not between":          func(q *reservation.ReserveRequest) { q.Retention = 48 * time.Hour },
		"key: it has 257 bytes, at most 256":         func(q *reservation.ReserveRequest) { q.Key = strings.Repeat("k", 257) },
		"holds[0]: amount: 9223372036854775807":      func(q *reservation.ReserveRequest) { q.Holds[0].Amount = math.MaxInt64 },
		"holds[0]: bucket.capacity: 0":               func(q *reservation.ReserveRequest) { q.Holds[0].Bucket.Capacity = 0 },
		"per_micros: 0 is not between 1":             func(q *reservation.ReserveRequest) { q.Holds[0].Bucket.PerMicros = 0 },
		"refill: 0 is not between 1":                 func(q *reservation.ReserveRequest) { q.Holds[0].Bucket.Refill = 0 },
		"holds[0]: kind: 0 is not a kind":            func(q *reservation.ReserveRequest) { q.Holds[0].Kind = 0 },
		"holds[1]: amount: 2 is not between 0 and 1": func(q *reservation.ReserveRequest) { q.Holds[1].Amount = 2 },
		"holds[1]: max: -1 is not between":           func(q *reservation.ReserveRequest) { q.Holds[1].Max = -1 },
		"holds[2]: period: it must end after":        func(q *reservation.ReserveRequest) { q.Holds[2].Period = quota.Period{} },
		"holds[2]: pool: a pool has buckets":         func(q *reservation.ReserveRequest) { q.Holds[2].Pool = "p" },
		"holds[3]: it takes from the same counter":   func(q *reservation.ReserveRequest) { q.Holds = append(q.Holds, q.Holds[0]) },
	} {
		q := reservation.ReserveRequest{
			Account: "acme", ID: reservation.NewID(clock.Now()), Lease: time.Second,
			Holds: []reservation.Hold{bucketHold("tokens", "", 1), slotHold("slow", ""), quotaHold(clock, "daily", "", 1)},
		}
		spoil(&q)
		if _, err := s.Reserve(t.Context(), q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
	if n := s.sizes(); n != (sizes{}) {
		t.Errorf("bad requests left %+v", n)
	}
}

// TestUnpostedCannotOverflow: a thousand overruns of the largest amount, none
// confirmed, are refused before a counter leaves 64 bits.
func TestUnpostedCannotOverflow(t *testing.T) {
	clock := storetest.NewClock()
	s := newStore(t, clock)
	hold := quotaHold(clock, "daily", "", 0)
	for i := range 2000 {
		q := reservation.ReserveRequest{Account: "acme", ID: reservation.NewID(clock.Now()), Lease: time.Hour, Holds: []reservation.Hold{hold}}
		if _, err := s.Reserve(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		_, err := s.Refund(t.Context(), reservation.RefundRequest{Account: "acme", ID: q.ID, Lease: q.Lease, Actual: []quota.Amount{quota.MaxAmount}})
		if err != nil {
			if !errors.Is(err, quota.ErrOverflow) || i < 100 {
				t.Fatalf("overrun %d: %v", i, err)
			}
			record, err := s.Lookup(t.Context(), "acme", q.ID)
			if err != nil || record.State != reservation.StateHeld {
				t.Fatalf("state %d, %v", record.State, err)
			}
			return
		}
		levels, _, err := s.Levels(t.Context(), "acme", []reservation.Hold{hold})
		if err != nil || levels[0].Unposted != quota.MaxAmount*quota.Amount(i+1) {
			t.Fatalf("overrun %d: %+v, %v", i, levels, err)
		}
	}
	t.Fatal("nothing was refused")
}

// TestForgottenIDCannotHoldAgain: an id whose lease and retention are shorter
// than MintSkew is remembered until it is stale.
func TestForgottenIDCannotHoldAgain(t *testing.T) {
	clock := storetest.NewClock()
	s := newStore(t, clock)
	q := reservation.ReserveRequest{
		Account: "acme", ID: reservation.NewID(clock.Now()), Lease: time.Millisecond, Holds: []reservation.Hold{bucketHold("tokens", "", 1)},
	}
	if _, err := s.Reserve(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	settle(t, s, q)
	for range 60 {
		clock.Add(100 * time.Millisecond)
		sweepAndConfirm(t, s, q.Lease, 0)
		answer, err := s.Reserve(t.Context(), q)
		if err != nil || answer.Verdict != reservation.Closed && answer.Verdict != reservation.Stale {
			t.Fatalf("verdict %d, %v", answer.Verdict, err)
		}
	}
}

// TestRenewedSlotAfterAStepBack: a lease was over, its slot free, and then the clock
// stepped back. Who renews now holds a slot again.
func TestRenewedSlotAfterAStepBack(t *testing.T) {
	clock := storetest.NewClock()
	s := newStore(t, clock)
	hold := slotHold("slow", "")
	hold.Max = 1
	q := reservation.ReserveRequest{Account: "acme", ID: reservation.NewID(clock.Now()), Lease: 10 * time.Second, Holds: []reservation.Hold{hold}}
	if _, err := s.Reserve(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	free := func() quota.Amount {
		levels, _, err := s.Levels(t.Context(), "acme", q.Holds)
		if err != nil {
			t.Fatal(err)
		}
		return levels[0].Remaining
	}
	clock.Add(10 * time.Second)
	if n := free(); n != 1 {
		t.Fatalf("the lease is over, and %d are free", n)
	}
	clock.Add(-time.Millisecond)
	answer, err := s.Renew(t.Context(), reservation.RenewRequest{Account: "acme", ID: q.ID, Lease: time.Second})
	if err != nil || answer.State != reservation.StateHeld {
		t.Fatalf("renew: state %d, %v", answer.State, err)
	}
	if n := free(); n != 0 {
		t.Errorf("renewed, and %d are free", n)
	}
}
