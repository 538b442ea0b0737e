package memstore

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/storetest"
)

// traffic is a benchmark's requests: names and ids are made beforehand, so
// that only the engine is measured.
type traffic struct {
	store    *Store
	clock    *storetest.Clock
	accounts []string
	holds    []reservation.Hold
	random   *rand.PCG
	serial   uint64
	wait     time.Duration // that requests state
}

func newTraffic(b *testing.B, accounts int, holds ...reservation.Hold) *traffic {
	t := &traffic{clock: storetest.NewClock(), holds: holds, random: rand.NewPCG(1, 2)}
	t.store = newStore(b, t.clock)
	for i := range accounts {
		t.accounts = append(t.accounts, fmt.Sprintf("account-%d", i))
	}
	return t
}

func (t *traffic) request() reservation.ReserveRequest {
	t.serial++
	// A record is remembered for MintSkew at least: 5,000 of them at this pace.
	t.clock.Add(time.Millisecond)
	id := reservation.ID{}
	now := uint64(t.clock.Now().UnixMicro())
	for i := range 8 {
		id[i], id[8+i] = byte(now>>(56-8*i)), byte(t.serial>>(8*i))
	}
	return reservation.ReserveRequest{
		Account: t.accounts[t.random.Uint64()%uint64(len(t.accounts))], ID: id, Holds: t.holds,
		Lease: time.Second, Retention: 0, MaxWait: t.wait,
	}
}

// pair reserves, refunds and, so that the record can go, confirms.
func (t *traffic) pair(b *testing.B, answer *reservation.ReserveAnswer, refund *reservation.RefundAnswer, actual []quota.Amount, reuse bool) {
	ctx := b.Context()
	q := t.request()
	r := reservation.RefundRequest{Account: q.Account, ID: q.ID, Lease: q.Lease, Actual: actual}
	var err error
	if reuse {
		if err = t.store.reserve(ctx, &q, answer); err == nil {
			err = t.store.refund(ctx, &r, refund)
		}
	} else {
		if *answer, err = t.store.Reserve(ctx, q); err == nil {
			*refund, err = t.store.Refund(ctx, r)
		}
	}
	if err != nil || answer.Verdict != reservation.Granted || refund.Verdict != reservation.RefundSettled {
		b.Fatalf("verdicts %d and %d, %v", answer.Verdict, refund.Verdict, err)
	}
	if _, err := t.store.Confirm(ctx, reservation.ConfirmRequest{
		Account: q.Account, ID: q.ID, Lease: q.Lease, Rank: ledger.RankRefunded, Actual: actual,
	}); err != nil {
		b.Fatal(err)
	}
}

func benchmarkPair(b *testing.B, accounts int, reuse bool, holds ...reservation.Hold) {
	benchmarkTraffic(b, newTraffic(b, accounts, holds...), reuse)
}

func benchmarkTraffic(b *testing.B, t *traffic, reuse bool) {
	actual := make([]quota.Amount, len(t.holds))
	var answer reservation.ReserveAnswer
	var refund reservation.RefundAnswer
	for range max(20_000, 2*len(t.accounts)) { // as it is when it has run for a while
		t.pair(b, &answer, &refund, actual, reuse)
	}
	b.ReportAllocs()
	began := cpuTime(b)
	for b.Loop() {
		t.pair(b, &answer, &refund, actual, reuse)
	}
	b.ReportMetric(float64(cpuTime(b)-began)/float64(b.N), "cpu-ns/op")
}

// cpuTime is what this process has used: on a machine that others share it
// says more than the clock.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

var benchHolds = map[string][]reservation.Hold{
	"bucket":         {bucketHold("tokens", "", 1)},
	"4buckets+1slot": {bucketHold("a", "", 1), bucketHold("b", "", 1), bucketHold("c", "", 1), bucketHold("d", "", 1), slotHold("slow", "")},
}

// BenchmarkPair is a Reserve, its Refund and the Confirm that lets it be
// forgotten. "core" uses the answers' memory again.
func BenchmarkPair(b *testing.B) {
	for _, plan := range []string{"bucket", "4buckets+1slot"} {
		for _, accounts := range []int{1, 1000, 100_000} {
			for _, path := range []string{"core", "api"} {
				b.Run(fmt.Sprintf("%s/accounts=%d/%s", plan, accounts, path), func(b *testing.B) {
					benchmarkPair(b, accounts, path == "core", benchHolds[plan]...)
				})
			}
		}
	}
}

// BenchmarkRefused is a Reserve that does not fit.
func BenchmarkRefused(b *testing.B) {
	t := newTraffic(b, 1000, bucketHold("tokens", "", 1))
	t.holds[0].Amount = 2000
	var answer reservation.ReserveAnswer
	b.ReportAllocs()
	for b.Loop() {
		q := t.request()
		if err := t.store.reserve(b.Context(), &q, &answer); err != nil || answer.Verdict != reservation.Refused {
			b.Fatalf("verdict %d, %v", answer.Verdict, err)
		}
	}
}

// BenchmarkOpen is a pair in an account that has many reservations open.
func BenchmarkOpen(b *testing.B) {
	for _, open := range []int{1, 100, 10_000, 100_000} {
		b.Run(fmt.Sprint(open), func(b *testing.B) {
			t := newTraffic(b, 1, slotHold("slow", ""))
			for range open {
				q := t.request()
				q.Lease = 24 * time.Hour
				if _, err := t.store.Reserve(b.Context(), q); err != nil {
					b.Fatal(err)
				}
			}
			var answer reservation.ReserveAnswer
			var refund reservation.RefundAnswer
			b.ReportAllocs()
			for b.Loop() {
				t.pair(b, &answer, &refund, []quota.Amount{0}, true)
			}
		})
	}
}
