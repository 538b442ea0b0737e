package redisstore

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// BenchmarkAlgorithms compares, in one run and round by round, the time inside
// Redis of a Reserve and of its Refund of one unit of a limit of each kind, and
// tells the bytes of a counter's key after ten of them in a scope.
func BenchmarkAlgorithms(b *testing.B) {
	kinds := []quota.Kind{quota.KindBucket, quota.KindGCRA, quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog, quota.KindLeakyQueue}
	x := newBench(b)
	nothing := x.load("return 1")
	reserves, refunds, waits := make([]samples, len(kinds)), make([]samples, len(kinds)), make([]samples, len(kinds))
	var nop samples
	bytes := make([]int64, len(kinds))
	hold := func(kind quota.Kind) reservation.Hold {
		h := reservation.Hold{Counter: reservation.Counter{Limit: "calls.00000001", Scope: "user=7"}, Amount: 1, OnExpiry: quota.ExpiryGiveBack}
		h.SetRate(quota.Limit{Kind: kind, Rate: quota.Rate{Amount: quota.MaxLogUnits, Every: time.Minute}, Burst: quota.MaxLogUnits})
		return h
	}
	for b.Loop() {
		for i, kind := range kinds {
			x.holds = []reservation.Hold{hold(kind)}
			now := time.Now()
			var taking, giving []command
			for range 10 {
				r := x.ask(kind.Algorithm(), now)
				taking = append(taking, x.reserveCommand(r))
				keys, arg := x.s.refundCall(x.s.account(r.Account), &reservation.RefundRequest{
					Account: r.Account, ID: r.ID, Lease: r.Lease, Retention: r.Retention, Token: r.Token, Actual: []quota.Amount{0},
				})
				giving = append(giving, command{x.s.single.loaded.Load().digests[scriptRefund], keys, arg})
			}
			reserves[i] = append(reserves[i], x.run(taking))
			_, key := x.s.place(x.s.account(kind.Algorithm()), kind, x.holds[0].Counter)
			size, err := x.client.MemoryUsage(context.Background(), key).Result()
			if err != nil {
				b.Fatal(err)
			}
			bytes[i] = size
			refunds[i] = append(refunds[i], x.run(giving))
			waits[i] = append(waits[i], x.run(x.waiting(kind)))
		}
		nop = append(nop, x.run([]command{{nothing, []string{"classic"}, nil}}))
	}
	for i, kind := range kinds {
		b.ReportMetric(reserves[i].median(), kind.Algorithm()+"-reserve-us")
		b.ReportMetric(refunds[i].median(), kind.Algorithm()+"-refund-us")
		b.ReportMetric(waits[i].median(), kind.Algorithm()+"-wait-us")
		b.ReportMetric(float64(bytes[i]), kind.Algorithm()+"-B")
	}
	b.ReportMetric(nop.median(), "return1-us")
	b.ReportMetric(0, "ns/op")
}

// waiting are ten Reserves whose starts are ahead: what is there was taken before, by an
// account of their own.
func (x *bench) waiting(kind quota.Kind) []command {
	now := time.Now()
	account := kind.Algorithm() + "-" + rand.Text()
	most := x.ask(account, now)
	most.Holds = slices.Clone(x.holds)
	most.Holds[0].Amount = quota.MaxLogUnits
	if kind == quota.KindLeakyQueue {
		most.Holds[0].Amount /= 2 // the others have to fit
	}
	x.run([]command{x.reserveCommand(most)})
	first := x.ask(account, now)
	first.MaxWait = time.Hour
	if answer, err := x.s.Reserve(context.Background(), first); err != nil || !answer.StartAt.After(answer.Now) {
		x.Fatalf("%s: %+v, %v; want a start that is ahead", account, answer, err)
	}
	var taking []command
	for range 10 {
		r := x.ask(account, now)
		r.MaxWait = time.Hour
		taking = append(taking, x.reserveCommand(r))
	}
	return taking
}
