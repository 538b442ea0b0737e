package memstore

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// BenchmarkRules is a pair as in BenchmarkAlgorithms, of a token bucket with a rule for
// what it keeps, or for whom it refuses. Each call is granted.
func BenchmarkRules(b *testing.B) {
	for _, rule := range []struct {
		name string
		add  func(*reservation.Hold)
	}{
		{"none", func(*reservation.Hold) {}},
		{"keep_for", func(h *reservation.Hold) { h.Keep = 100 }},
		{"count_refusals", func(h *reservation.Hold) { h.CountRefusals = true }},
		{"ban", func(h *reservation.Hold) {
			h.Ban = quota.Ban{Refusals: 10, Within: time.Minute, For: time.Minute}
		}},
	} {
		b.Run(rule.name, func(b *testing.B) {
			h := algorithms()[0]
			rule.add(&h)
			benchmarkPair(b, 1000, true, h)
		})
	}
}

// BenchmarkShares is a pair of a pool's bucket that so many accounts share all the time,
// beside one that is not shared.
func BenchmarkShares(b *testing.B) {
	for _, accounts := range []int{1, 10, 1000} {
		for _, fair := range []bool{false, true} {
			b.Run(fmt.Sprintf("accounts=%d/fair=%v", accounts, fair), func(b *testing.B) {
				h := bucketHold("tokens", "", 1)
				h.Pool, h.Fair, h.Bucket.Capacity = "org", fair, 1<<50
				t := newTraffic(b, accounts, h)
				for _, account := range t.accounts { // each far ahead
					q := t.request()
					h.Amount = 1_000_000_000
					q.Account, q.Holds, q.Lease = account, []reservation.Hold{h}, 24*time.Hour
					if _, err := t.store.Reserve(b.Context(), q); err != nil {
						b.Fatal(err)
					}
				}
				benchmarkTraffic(b, t, true)
				levels, _, err := t.store.Levels(b.Context(), t.accounts[0], t.holds)
				if want := map[bool]int{true: accounts}[fair]; err != nil || levels[0].Sharing != want {
					b.Fatalf("%d accounts share, want %d; %v", levels[0].Sharing, want, err)
				}
			})
		}
	}
}

// BenchmarkShareBytes is the heap that an account takes while it is ahead, its name apart.
func BenchmarkShareBytes(b *testing.B) {
	const accounts = 100_000
	names := make([]string, accounts)
	for i := range names {
		names[i] = fmt.Sprint("account-", i)
	}
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		book := &shareBook{}
		for i, name := range names {
			book.put(name, int64(i+1), 0)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/accounts, "B/account")
		runtime.KeepAlive(book)
	}
	b.ReportMetric(0, "ns/op")
}
