// Package holdlab replays traces of model calls through an engine, with the
// trace's clock, to measure what each way of holding lets through.
package holdlab

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/estimator/forecast"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/memstore"
)

// Call is one request of a trace.
type Call struct {
	At      time.Time
	Context int64 // tokens read
	Output  int64 // tokens written
}

// Way is a way of holding.
type Way string

// The ways of holding.
const (
	Maximum Way = "maximum at arrival" // input and max_tokens are charged for good
	After   Way = "after the call"     // a call begins while the level is above 0, and is charged when it ends
	Worst   Way = "worst case"         // input and max_tokens are held, what was not used comes back
	Learned Way = "forecast"           // input and the forecast are held, within the tolerance
	Oracle  Way = "oracle"             // what the call will use is held
)

// Engines opens an engine under the trace's clock.
type Engines func(clock func() time.Time) (reservation.Store, error)

func inMemory(clock func() time.Time) (reservation.Store, error) {
	return memstore.New(memstore.Config{Clock: clock})
}

// Setup is one limit and one way of holding.
type Setup struct {
	Way       Way
	MaxTokens int64   // of every call; a longer output is cut there
	Bucket    float64 // capacity, in seconds of the rate
	Tolerance float64 // in buckets
	Quantile  float64 // of the forecast; 0: the default
	Engine    Engines // nil: in memory
}

// Result is what one limit let through.
type Result struct {
	Requests int
	Tokens   int64
	Forecast int           // calls that held a forecast
	Overruns int           // calls that used more than they held
	Bucket   quota.Amount  // capacity in tokens
	Excess   float64       // by how much the worst span passed C + r*T, in buckets; below 0: by how much it stayed below
	Debt     quota.Amount  // lowest level after a call had ended, as a debt
	Rate     float64       // tokens a second
	Span     time.Duration // of the trace
}

// serviceTime of a call: half a second, and 20 ms a token.
func serviceTime(output int64) time.Duration {
	return 500*time.Millisecond + time.Duration(output)*20*time.Millisecond
}

// running is an admitted call.
type running struct {
	ends   time.Time
	id     reservation.ID
	actual quota.Amount
	output int64
	held   quota.Amount
}

type queue []running

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].ends.Before(q[j].ends) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(running)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	popped := (*q)[last]
	*q = (*q)[:last]
	return popped
}

const (
	account   = "lab"
	lease     = 10 * time.Minute
	retention = time.Minute
)

// lab is one replay.
type lab struct {
	Setup
	Result
	store   reservation.Store
	now     time.Time
	hold    reservation.Hold
	learner *forecast.Learner
	key     forecast.Key
	open    queue

	// The worst span that ends now: what passed in it above r*T.
	burst  float64
	before time.Time
	worst  float64
}

// Run replays calls against one limit, whose rate is half of what they use. A
// refused call is gone: nobody repeats it.
func Run(calls []Call, s Setup) (result Result, err error) {
	l := &lab{Setup: s, now: calls[0].At, before: calls[0].At, worst: -1e18}
	open := inMemory
	if s.Engine != nil {
		open = s.Engine
	}
	if l.store, err = open(func() time.Time { return l.now }); err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, l.store.Close()) }()
	offered := int64(0)
	for _, c := range calls {
		offered += c.Context + min(c.Output, s.MaxTokens)
	}
	l.Span = calls[len(calls)-1].At.Sub(calls[0].At)
	perHour := quota.Amount(float64(offered) / 2 / l.Span.Hours())
	l.Rate = float64(perHour) / 3600
	l.Result.Bucket = quota.Amount(l.Rate * s.Bucket)
	l.hold = reservation.Hold{
		Counter: reservation.Counter{Limit: "tokens"}, Kind: quota.KindBucket, OnExpiry: quota.ExpiryGiveBack,
		Bucket: quota.Limit{Kind: quota.KindBucket, Rate: quota.Rate{Amount: perHour, Every: time.Hour}, Burst: l.Result.Bucket}.Bucket(),
	}
	l.learner = forecast.New(forecast.Config{Quantile: s.Quantile})
	l.key = forecast.Key{Account: account, Bound: forecast.Bound(s.MaxTokens)}
	for _, c := range calls {
		c.Output = min(c.Output, s.MaxTokens)
		for len(l.open) > 0 && !l.open[0].ends.After(c.At) {
			if err := l.finish(); err != nil {
				return Result{}, err
			}
		}
		l.now = c.At
		if err := l.arrive(c); err != nil {
			return Result{}, err
		}
	}
	for len(l.open) > 0 {
		if err := l.finish(); err != nil {
			return Result{}, err
		}
	}
	l.Excess = (l.worst - float64(l.Result.Bucket)) / float64(l.Result.Bucket)
	return l.Result, nil
}

// flowed notes what left the bucket now, or came back.
func (l *lab) flowed(amount quota.Amount) {
	l.burst = max(0, l.burst-l.Rate*l.now.Sub(l.before).Seconds()) + float64(amount)
	l.worst, l.before = max(l.worst, l.burst), l.now
}

// arrive asks for one call.
func (l *lab) arrive(c Call) error {
	ctx := context.Background()
	q := reservation.ReserveRequest{
		Account: account, ID: reservation.NewID(l.now), Holds: []reservation.Hold{l.hold}, Lease: lease, Retention: retention,
	}
	hold := &q.Holds[0]
	hold.Amount = quota.Amount(c.Context + l.MaxTokens)
	actual := quota.Amount(c.Context + c.Output)
	switch l.Way {
	case After:
		levels, _, err := l.store.Levels(ctx, account, q.Holds)
		if err != nil || levels[0].Remaining <= 0 {
			return err
		}
		hold.Amount = 0
	case Oracle:
		hold.Amount = actual
	case Learned:
		expected, _ := l.learner.Forecast(l.key, l.MaxTokens, l.now)
		q.Output = &reservation.Output{
			Asked: l.MaxTokens, Least: l.MaxTokens, Forecast: expected,
			Slopes: []reservation.Slope{{PerToken: 1, Per: 1, Weight: 1, Tolerance: quota.Amount(l.Tolerance * float64(l.Result.Bucket))}},
		}
	}
	answer, err := l.store.Reserve(ctx, q)
	if err != nil || answer.Verdict != reservation.Granted {
		return err
	}
	held := hold.Amount
	if q.Output != nil {
		taken := q.Output.Taken(q.Holds, answer.Decided)[0]
		held = taken.Amount
		if taken.Forecast {
			l.Forecast++
		}
	}
	l.Requests++
	l.Tokens += int64(actual)
	l.flowed(held)
	heap.Push(&l.open, running{l.now.Add(serviceTime(c.Output)), q.ID, actual, c.Output, held})
	return nil
}

// finish ends the call that ends first.
func (l *lab) finish() error {
	call := heap.Pop(&l.open).(running)
	l.now = call.ends
	charged := call.actual
	if l.Way == Maximum {
		charged = call.held
	}
	answer, err := l.store.Refund(context.Background(), reservation.RefundRequest{
		Account: account, ID: call.id, Lease: lease, Retention: retention, Actual: []quota.Amount{charged},
	})
	if err != nil {
		return err
	}
	if answer.Verdict != reservation.RefundSettled {
		return fmt.Errorf("the Refund of %s got verdict %d", call.id, answer.Verdict)
	}
	if call.actual > call.held && l.Way != After {
		l.Overruns++
	}
	l.flowed(charged - call.held)
	l.Debt = max(l.Debt, -answer.Levels[0].Remaining)
	l.learner.Observe(l.key, call.output, call.output >= l.MaxTokens, l.now)
	return nil
}

// TokenShare is how much of what another let through in tokens.
func (r Result) TokenShare(of Result) float64 { return float64(r.Tokens) / float64(of.Tokens) }

// RequestShare is the same in requests.
func (r Result) RequestShare(of Result) float64 { return float64(r.Requests) / float64(of.Requests) }
