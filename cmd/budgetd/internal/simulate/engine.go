package simulate

import (
	"context"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/memstore"
)

// account is whose budget the simulated calls use.
const account = "simulated"

// retention of what an engine is asked: nothing is asked twice.
const retention = time.Second

// limiter is one limit in an engine of the product, in memory. It needs no Close:
// memory is all that it has.
type limiter struct {
	store *memstore.Store
	clock *clock
	hold  reservation.Hold
}

func newLimiter(c *clock, hold reservation.Hold) (*limiter, error) {
	store, err := memstore.New(memstore.Config{Clock: c.Now})
	if err != nil {
		return nil, err
	}
	return &limiter{store: store, clock: c, hold: hold}, nil
}

// take asks for one call, which is settled at once, and says whether it may go on.
func (l *limiter) take() (bool, error) { return l.takeFor("") }

// takeFor is take with one counter a scope.
func (l *limiter) takeFor(scope string) (bool, error) {
	answer, err := l.ask(scope)
	return answer.Verdict == reservation.Granted, err
}

// ask is takeFor with the engine's answer, which is Granted or Refused.
func (l *limiter) ask(scope string) (reservation.ReserveAnswer, error) {
	hold := l.hold
	hold.Scope, hold.Amount = scope, 1
	q := reservation.ReserveRequest{
		Account: account, ID: reservation.NewID(l.clock.now), Retention: retention, Settle: &reservation.Settlement{},
	}
	if hold.Kind == quota.KindLeakyQueue {
		// What is settled at once can't wait. The end of its lease leaves it counted.
		hold.OnExpiry, q.Settle, q.Lease = quota.ExpiryCharge, nil, time.Minute
	}
	q.Holds = []reservation.Hold{hold}
	answer, err := l.store.Reserve(context.Background(), q)
	if err == nil && answer.Verdict != reservation.Granted && answer.Verdict != reservation.Refused {
		err = fmt.Errorf("the engine answered a call at %s with verdict %d", l.clock.elapsed(), answer.Verdict)
	}
	return answer, err
}

// charge counts units whether they fit or not: a call that was asked nothing for
// and reports what it used.
func (l *limiter) charge(units quota.Amount) error {
	hold := l.hold
	hold.Amount = 0
	id := reservation.NewID(l.clock.now)
	answer, err := l.store.Reserve(context.Background(), reservation.ReserveRequest{
		Account: account, ID: id, Holds: []reservation.Hold{hold}, Lease: time.Minute, Retention: retention,
	})
	if err != nil {
		return err
	}
	if answer.Verdict != reservation.Granted {
		return fmt.Errorf("the engine answered a call for nothing with verdict %d", answer.Verdict)
	}
	refund, err := l.store.Refund(context.Background(), reservation.RefundRequest{
		Account: account, ID: id, Lease: time.Minute, Retention: retention, Actual: []quota.Amount{units},
	})
	if err == nil && refund.Verdict != reservation.RefundSettled {
		err = fmt.Errorf("the engine answered a Refund with verdict %d", refund.Verdict)
	}
	return err
}

// remaining is what the limit has left now.
func (l *limiter) remaining() (quota.Amount, error) {
	levels, _, err := l.store.Levels(context.Background(), account, []reservation.Hold{l.hold})
	if err != nil {
		return 0, err
	}
	return levels[0].Remaining, nil
}

// rateOf is a limit of a kind that states a rate: so many units a span.
func rateOf(kind quota.Kind, amount quota.Amount, every time.Duration) reservation.Hold {
	hold := reservation.Hold{Counter: reservation.Counter{Limit: "calls"}, OnExpiry: quota.ExpiryCharge}
	hold.SetRate(quota.Limit{Kind: kind, Rate: quota.Rate{Amount: amount, Every: every}})
	return hold
}

// bucketOf is a token bucket, which holds as much as it gets in a span.
func bucketOf(amount quota.Amount, every time.Duration) reservation.Hold {
	return rateOf(quota.KindBucket, amount, every)
}

// aSecond is a limit of so many calls a second, by some algorithm.
type aSecond func(calls quota.Amount) reservation.Hold

// limitsASecond are the two that fleets and races are shown with.
var limitsASecond = []struct {
	name  string
	limit aSecond
}{
	{"window", func(calls quota.Amount) reservation.Hold { return rateOf(quota.KindFixedWindow, calls, time.Second) }},
	{"bucket", func(calls quota.Amount) reservation.Hold { return bucketOf(calls, time.Second) }},
}
