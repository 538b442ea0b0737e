package memstore

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// algorithms are limits of 1,000 a minute, one of each kind that has a rate.
func algorithms() []reservation.Hold {
	var holds []reservation.Hold
	for _, kind := range []quota.Kind{quota.KindBucket, quota.KindGCRA, quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog, quota.KindLeakyQueue} {
		h := reservation.Hold{Counter: reservation.Counter{Limit: "calls"}, Amount: 1, OnExpiry: quota.ExpiryGiveBack}
		h.SetRate(quota.Limit{Kind: kind, Rate: quota.Rate{Amount: quota.MaxLogUnits, Every: time.Minute}, Burst: quota.MaxLogUnits})
		holds = append(holds, h)
	}
	return holds
}

// BenchmarkAlgorithms is a pair as in BenchmarkPair, and what one more counter with
// one open reservation of ten units costs in memory.
func BenchmarkAlgorithms(b *testing.B) {
	for _, h := range algorithms() {
		b.Run(h.Kind.Algorithm(), func(b *testing.B) {
			bytes := counterBytes(b, h)
			benchmarkPair(b, 1000, true, h)
			b.ReportMetric(bytes, "B/counter")
		})
	}
}

// counterBytes is the heap that 10,000 counters take, each with ten entries, less
// that of as many reservations of no counter.
func counterBytes(b *testing.B, h reservation.Hold) float64 {
	const counters = 10_000
	heap := func(held bool) float64 {
		t := newTraffic(b, 1)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range counters {
			h.Scope = fmt.Sprintf("user=%d", i)
			for range 10 {
				q := t.request()
				q.Lease = 24 * time.Hour
				if t.clock.Add(-time.Millisecond + time.Microsecond); held {
					q.Holds = []reservation.Hold{h}
				}
				if _, err := t.store.Reserve(b.Context(), q); err != nil {
					b.Fatal(err)
				}
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(t)
		return float64(after.HeapAlloc) - float64(before.HeapAlloc)
	}
	return (heap(true) - heap(false)) / counters
}

// BenchmarkWaiting is a pair whose start is booked ahead: of each limit about twenty
// calls wait all the time, and as many are asked as it lets go.
func BenchmarkWaiting(b *testing.B) {
	for _, h := range algorithms() {
		b.Run(h.Kind.Algorithm(), func(b *testing.B) {
			// As fast as the traffic's clock, so that the line stays as long as it is.
			h.SetRate(quota.Limit{Kind: h.Kind, Rate: quota.Rate{Amount: 10, Every: 10 * time.Millisecond}, Burst: 40})
			t := newTraffic(b, 1, h)
			t.wait = time.Minute
			actual := []quota.Amount{1}
			var answer reservation.ReserveAnswer
			var refund reservation.RefundAnswer
			at := t.clock.Now()
			for !answer.StartAt.After(at.Add(20 * time.Millisecond)) {
				t.pair(b, &answer, &refund, actual, true)
				t.clock.Set(at)
			}
			pair := func() {
				t.pair(b, &answer, &refund, actual, true)
				if latest := answer.StartAt.Add(-20 * time.Millisecond); latest.After(t.clock.Now()) {
					t.clock.Set(latest) // a sliding window lets go fewer than its rate
				}
			}
			for range 20_000 {
				pair()
			}
			b.ReportAllocs()
			began, ahead := cpuTime(b), 0
			for b.Loop() {
				pair()
				if answer.StartAt.After(answer.Now) {
					ahead++
				}
			}
			b.ReportMetric(float64(cpuTime(b)-began)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(ahead)/float64(b.N), "waiting/op")
		})
	}
}
