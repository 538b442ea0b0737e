package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// BenchmarkRules compares, in one run and round by round, the time inside Redis of a
// Reserve and of its Refund of one unit of a token bucket, without any rule, with rules
// that make it take the general script, and of a pool's bucket that 1, 10 and 1,000
// accounts share; and of a Reserve that is refused.
func BenchmarkRules(b *testing.B) {
	x := newBench(b)
	var rules []rule
	for _, name := range []string{"none", "keep_for", "count_refusals", "ban"} {
		h := reservation.Hold{
			Counter: reservation.Counter{Limit: "calls.00000001", Scope: "user=7"}, Kind: quota.KindBucket, Amount: 1, OnExpiry: quota.ExpiryGiveBack,
			Bucket: quota.Bucket{Capacity: 1000, Refill: 1, PerMicros: 60_000},
		}
		switch name {
		case "keep_for":
			h.Keep = 1
		case "count_refusals":
			h.CountRefusals = true
		case "ban":
			h.Ban = quota.Ban{Refusals: 100, Within: time.Minute, For: time.Minute}
		}
		rules = append(rules, rule{name: name, hold: h})
	}
	for _, accounts := range []int{0, 1, 10, 1000} {
		r := rule{name: "pool", hold: reservation.Hold{
			Counter: reservation.Counter{Pool: fmt.Sprint("org-", accounts), Limit: "calls.00000001"}, Kind: quota.KindBucket, Amount: 1, OnExpiry: quota.ExpiryGiveBack,
			Bucket: quota.Bucket{Capacity: 1 << 50, Refill: 1, PerMicros: 1000}, Fair: accounts > 0,
		}}
		if accounts > 0 {
			r.name = fmt.Sprint("fair-", accounts)
			r.bytes = x.share(r.hold, accounts)
		}
		rules = append(rules, r)
	}
	for b.Loop() {
		now := time.Now()
		for i := range rules {
			r := &rules[i]
			account := "account-0"
			if r.hold.Pool == "" {
				account = r.name
			}
			x.holds = []reservation.Hold{r.hold}
			var taking, giving, refused []command
			for range benchDepth {
				q := x.ask(account, now)
				taking = append(taking, x.reserveCommand(q))
				keys, arg := x.s.refundCall(x.s.account(q.Account), &reservation.RefundRequest{
					Account: q.Account, ID: q.ID, Lease: q.Lease, Retention: q.Retention, Token: q.Token, Actual: []quota.Amount{0},
				})
				giving = append(giving, command{x.s.single.loaded.Load().digests[scriptRefund], keys, arg})
			}
			r.reserves = append(r.reserves, x.run(taking))
			r.refunds = append(r.refunds, x.run(giving))
			if r.hold.Pool == "" { // what a round's refusals leave is not the next one's
				x.holds[0].Scope = "user=" + rand.Text()
				x.run([]command{x.reserveCommand(x.ask(account, now))})
			}
			x.holds[0].Amount, x.holds[0].Keep = r.hold.Bucket.Capacity, 0
			for range benchDepth {
				refused = append(refused, x.reserveCommand(x.ask(account, now)))
			}
			r.refusals = append(r.refusals, x.run(refused))
		}
	}
	for _, r := range rules {
		b.ReportMetric(r.reserves.median(), r.name+"-reserve-us")
		b.ReportMetric(r.refunds.median(), r.name+"-refund-us")
		b.ReportMetric(r.refusals.median(), r.name+"-refused-us")
		if r.bytes > 0 {
			b.ReportMetric(r.bytes, r.name+"-B/account")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// rule is a hold and what was measured of it.
type rule struct {
	name                        string
	hold                        reservation.Hold
	reserves, refunds, refusals samples
	bytes                       float64 // of an account that shares; 0: not shared
}

// share has so many accounts far ahead in a fair limit, and returns the bytes that Redis
// takes for each.
func (x *bench) share(hold reservation.Hold, accounts int) float64 {
	ctx := context.Background()
	hold.Amount = 100_000_000
	for i := range accounts {
		q := x.ask(fmt.Sprint("account-", i), time.Now())
		q.Holds, q.Lease = []reservation.Hold{hold}, time.Hour
		if answer, err := x.s.Reserve(ctx, q); err != nil || answer.Levels[0].Sharing != i+1 {
			x.Fatalf("%+v, %v; want %d accounts that share", answer, err, i+1)
		}
	}
	_, key := x.s.place(x.s.account("account-0"), hold.Kind, hold.Counter)
	size, err := x.client.MemoryUsage(ctx, key+"~").Result()
	if err != nil {
		x.Fatal(err)
	}
	return float64(size) / float64(accounts)
}
