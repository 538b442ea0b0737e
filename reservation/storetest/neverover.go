package storetest

import (
	"context"
	"fmt"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// runNeverOver checks what a bucket admits against arithmetic that knows no
// rounding: in every span at most C + r*T, net of what was given back, and a
// level that is off by less than one unit, never in the caller's favour.
func runNeverOver(t *testing.T, newEngine New) {
	engine, clock := begin(t, newEngine)
	check(t, engine.Checks, func(rt *rapid.T) { neverOver(rt, engine, clock) })
}

// fluid is a bucket without rounding.
type fluid struct {
	level, rate, capacity *big.Rat
}

func (f *fluid) add(x *big.Rat) {
	f.level = new(big.Rat).Add(f.level, x)
	if f.level.Cmp(f.capacity) > 0 {
		f.level = f.capacity
	}
}

// flow is what left the bucket for good or came back to it at an instant.
type flow struct {
	at     int64
	amount quota.Amount
}

// Rates of the field: money by the minute and by the day, provider limits, the
// slowest there is, and odd ones.
var fieldRates = []quota.Rate{
	{Amount: 10, Every: time.Second},
	{Amount: 5_000_000_000, Every: time.Minute},
	{Amount: 500_000_000_000, Every: 24 * time.Hour},
	{Amount: 10_000_000, Every: time.Minute},
	{Amount: 1, Every: 24 * time.Hour},
	{Amount: 3, Every: 7 * time.Second},
	{Amount: quota.MaxAmount, Every: time.Millisecond},
	{Amount: 1, Every: time.Millisecond},
}

func neverOver(t *rapid.T, engine Engine, clock *Clock) {
	ctx := context.Background()
	clock.Set(Epoch)
	engine.LoseData()
	rate := rapid.SampledFrom(fieldRates).Draw(t, "rate")
	capacity := quota.Amount(rapid.OneOf(
		rapid.Int64Range(1, 50), rapid.Int64Range(1, 10_000_000_000), rapid.Int64Range(1, int64(quota.MaxAmount)),
	).Draw(t, "capacity"))
	hold := reservation.Hold{
		Counter: reservation.Counter{Limit: "tokens"}, Kind: quota.KindBucket, OnExpiry: quota.ExpiryCharge,
		Bucket: quota.Limit{Kind: quota.KindBucket, Rate: rate, Burst: capacity}.Bucket(),
	}
	perMicro := big.NewRat(int64(rate.Amount), rate.Every.Microseconds())
	exact := &fluid{level: whole(int64(capacity)), rate: perMicro, capacity: whole(int64(capacity))}
	var flows []flow
	var open []reservation.ReserveRequest
	step := func(micros int64) {
		clock.Add(time.Duration(micros) * time.Microsecond)
		exact.add(new(big.Rat).Mul(perMicro, whole(micros)))
	}
	flowed := func(amount quota.Amount) {
		flows = append(flows, flow{clock.Now().UnixMicro(), amount})
	}
	admit := func(amount quota.Amount) (reservation.ReserveAnswer, bool) {
		hold.Amount = amount
		q := ask(clock, "acme", hold)
		q.Lease = 24 * time.Hour
		answer, err := engine.Store.Reserve(ctx, q)
		if err != nil {
			t.Fatalf("Reserve: %v", err)
		}
		fits := exact.level.Cmp(whole(int64(amount))) >= 0
		switch {
		case answer.Verdict == reservation.Granted && !fits:
			t.Fatalf("%d was granted, and only %s were there", amount, exact.level.FloatString(6))
		case answer.Verdict == reservation.Refused && fits:
			t.Fatalf("%d was refused, and %s were there", amount, exact.level.FloatString(6))
		case answer.Verdict == reservation.Granted:
			exact.add(whole(-int64(amount)))
			open = append(open, q)
			flowed(amount)
		case answer.Verdict != reservation.Refused:
			t.Fatalf("answered %s", nameIn(reserveNames, answer.Verdict))
		}
		return answer, answer.Verdict == reservation.Granted
	}
	t.Repeat(map[string]func(*rapid.T){
		"": func(t *rapid.T) {
			levels, _, err := engine.Store.Levels(ctx, "acme", []reservation.Hold{hold})
			if err != nil {
				t.Fatalf("Levels: %v", err)
			}
			// level <= exact < level + 1
			level := levels[0].Remaining
			if exact.level.Cmp(whole(int64(level))) < 0 || exact.level.Cmp(whole(int64(level)+1)) >= 0 {
				t.Fatalf("the level is %d, exactly it is %s", level, exact.level.FloatString(6))
			}
		},
		"time": func(t *rapid.T) {
			step(rapid.OneOf(
				rapid.Int64Range(1, 100), rapid.Int64Range(1, 10_000_000), rapid.Int64Range(1, (400*24*time.Hour).Microseconds()),
			).Draw(t, "micros"))
		},
		"reserve": func(t *rapid.T) {
			amount := rapid.OneOf(rapid.Int64Range(1, int64(capacity)), rapid.Int64Range(1, min(20, int64(capacity)))).Draw(t, "amount")
			answer, granted := admit(quota.Amount(amount))
			wait := answer.Refusal.RetryAt.UnixMicro() - clock.Now().UnixMicro()
			if granted || answer.Refusal.Reason != reservation.RateLimited || wait > (400*24*time.Hour).Microseconds() {
				return
			}
			// The retry instant is the first at which it passes.
			if wait < 1 {
				t.Fatalf("refused, and the retry is %d us away", wait)
			}
			step(wait - 1)
			if _, granted := admit(quota.Amount(amount)); granted {
				t.Fatalf("%d passed before the retry instant", amount)
			}
			step(1)
			if _, granted := admit(quota.Amount(amount)); !granted {
				t.Fatalf("%d was refused at the retry instant", amount)
			}
		},
		"refund": func(t *rapid.T) {
			if len(open) == 0 {
				return
			}
			i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			q := open[i]
			open = append(open[:i:i], open[i+1:]...)
			held := q.Holds[0].Amount
			actual := quota.Amount(rapid.Int64Range(0, int64(held)).Draw(t, "actual"))
			answer, err := engine.Store.Refund(ctx, closing(q, "used", actual))
			if err != nil || answer.Verdict != reservation.RefundSettled {
				t.Fatalf("Refund: %s, %v", nameIn(refundNames, answer.Verdict), err)
			}
			exact.add(whole(int64(held - actual)))
			flowed(actual - held)
		},
	})
	if err := spans(flows, hold.Bucket.Capacity, perMicro); err != nil {
		t.Fatal(err)
	}
}

// spans checks every span between two flows: what was admitted in it, net of
// what came back in it, is at most C + r*T.
func spans(flows []flow, capacity quota.Amount, perMicro *big.Rat) error {
	for i := range flows {
		net := new(big.Int)
		for j := i; j < len(flows); j++ {
			net.Add(net, big.NewInt(int64(flows[j].amount)))
			allowed := new(big.Rat).Mul(perMicro, whole(flows[j].at-flows[i].at))
			allowed.Add(allowed, whole(int64(capacity)))
			if new(big.Rat).SetInt(net).Cmp(allowed) > 0 {
				return fmt.Errorf("in %d us %s passed, at most %s may", flows[j].at-flows[i].at, net, allowed.FloatString(6))
			}
		}
	}
	return nil
}
