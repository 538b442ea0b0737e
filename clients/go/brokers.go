package budget

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/sony/gobreaker/v2"

	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
)

// A broker that failed this often in a row is not asked for a while; then one
// call tries it.
const (
	failuresInARow = 5
	breakerPause   = time.Second
)

// errNoneAsked says that every broker failed lately and none was asked.
var errNoneAsked = errors.New("no broker answered lately")

// errHasty is the end of a call whose caller gave its broker less time than the
// Client does: others are not to suffer for it.
var errHasty = errors.New("the caller had no time to wait")

// brokers are those that a Client may ask, each with a breaker.
type brokers struct {
	each []*endpoint
	last atomic.Int32 // index of the one that answered last
}

type endpoint struct {
	service budgetv1connect.BudgetServiceClient
	breaker *gobreaker.TwoStepCircuitBreaker[any]
}

func newEndpoint(service budgetv1connect.BudgetServiceClient) *endpoint {
	return &endpoint{service, gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		MaxRequests:  1,
		Timeout:      breakerPause,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= failuresInARow },
		IsSuccessful: func(err error) bool { return !Unanswered(err) },
		IsExcluded: func(err error) bool {
			return errors.Is(err, errHasty) || connect.CodeOf(err) == connect.CodeCanceled
		},
	})}
}

// ask makes a call at one broker after the other, beginning with the one that
// answered last, until one answers; an error that another try can't change is an
// answer. All of them together have the time within, of which each gets an equal
// share of what is left. A caller that leaves less than patience is hasty, and
// what runs out of time for it is no failure of a broker; 0 is of a call in the
// Client's own time, where each counts.
func ask[A any](ctx context.Context, b *brokers, within, patience time.Duration, call func(context.Context, budgetv1connect.BudgetServiceClient) (*connect.Response[A], error)) (*connect.Response[A], error) {
	if ends, bounded := ctx.Deadline(); bounded {
		within = min(within, time.Until(ends))
	}
	hasty := within < patience // says nothing of a broker that did not answer
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	deadline, _ := ctx.Deadline()
	begin := int(b.last.Load())
	var none error = connect.NewError(connect.CodeUnavailable, errNoneAsked)
	for i := range b.each {
		index := (begin + i) % len(b.each)
		e := b.each[index]
		done, err := e.breaker.Allow()
		if err != nil {
			continue
		}
		share := time.Until(deadline) / time.Duration(len(b.each)-i)
		attempt, cancel := context.WithTimeout(ctx, share)
		answer, err := call(attempt, e.service)
		if connect.CodeOf(err) == connect.CodeCanceled && attempt.Err() == nil {
			// Nobody here gave up: the broker ended, or its connection did.
			err = connect.NewError(connect.CodeUnavailable, err)
		}
		if hasty && attempt.Err() != nil {
			done(errHasty)
		} else {
			done(err)
		}
		cancel()
		if !Unanswered(err) {
			b.last.Store(int32(index))
			return answer, err
		}
		if none = err; ctx.Err() != nil {
			break
		}
	}
	return nil, none
}
