package budget

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"github.com/cenkalti/backoff/v5"

	"github.com/budgetd/budgetd/clients/go/internal/pause"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// Do runs call within a budget: it reserves, runs, and refunds what call says
// that it used.
//
// When a limit refuses and waiting can help, Do waits as the refusal asks, plus
// up to a tenth of jitter, and asks again; likewise, with growing waits, when
// the broker does not answer. Both end with the context or after [WithMaxWait],
// and Do returns the last error: a *[RefusedError] for a refusal. A start that the
// broker gave ahead, as by [Request.MaxWait], is waited for beside that, and call runs
// from it on; when ctx ends before, Do gives it back and returns a *[NotStartedError].
//
// call's context ends with ctx, when call has returned, and when the broker says that it
// is to stop: then its cause is a *[StoppedError], which Do returns too. While it runs, the lease is
// renewed at a third of its length, and more often when it says what it used so far by
// [Reservation.SetUsed]. Do refunds on every way out:
//
//   - a usage was returned: that, with or without an error;
//   - no usage, and SetUsed was called: what it told, and of other meters what was held;
//   - no usage and an error: the call counts as not made, unless its context had ended;
//   - no usage and no error, a panic, or an error after its context ended: nobody knows
//     what was used, so everything that was held counts as used.
//
// The Refund does not depend on ctx. One that can't be delivered within
// [WithRefundTimeout] is kept and tried again in the background, which is no
// error: see [WithKeptRefunds], [WithOnLost] and [Client.Close]. Do returns call's
// error, joined with a *[RefundError] if the Refund is refused or could not be
// kept.
func (c *Client) Do(ctx context.Context, request Request, call func(context.Context, *Reservation) (Usage, error)) error {
	attempt := c.attempt(request, "do-")
	reservation, err := attempt.reserveWaiting(ctx)
	if reservation, err = attempt.granted(ctx, reservation, err); err != nil {
		return err
	}
	running := c.keep(ctx, reservation, request)

	finished, usage, callErr := false, Usage{}, error(nil)
	var refundErr error
	func() {
		defer func() {
			// Runs on a panic too, which then goes on to the caller.
			if usage.isZero() && finished && callErr != nil && running.ctx.Err() == nil && !running.told() {
				usage = Unused()
			}
			_, refundErr = running.End(ctx, usage)
		}()
		usage, callErr = call(running.ctx, reservation)
		finished = true
		if stopped := running.stopped(); stopped != nil && errors.Is(callErr, context.Canceled) && !errors.As(callErr, &stopped) {
			callErr = errors.Join(callErr, stopped)
		}
	}()
	var failed *RefundError
	if errors.As(refundErr, &failed) && failed.Kept {
		refundErr = nil
	}
	return errors.Join(callErr, refundErr)
}

// attemptTimeout bounds one try of a Refund or a Renew: a broker that took the
// connection and says nothing is asked again, or another one.
const attemptTimeout = 5 * time.Second

// reserveWaiting asks until it is granted, waiting as the refusals say.
func (a *attempt) reserveWaiting(ctx context.Context) (*Reservation, error) {
	giveUp := time.Now().Add(a.client.options.maxWait)
	growing := newBackOff()
	for {
		reservation, err := a.reserve(ctx)
		if err == nil {
			return reservation, nil
		}
		wait, again := waitAfter(err, growing)
		if !again || time.Now().Add(wait).After(giveUp) {
			return nil, err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Now().Add(wait).After(deadline) {
			return nil, err // waiting would only turn a clear refusal into a timeout
		}
		if sleepErr := pause.For(ctx, wait); sleepErr != nil {
			return nil, errors.Join(sleepErr, err)
		}
	}
}

// waitAfter says how long to wait after an error before asking again, and
// whether asking again can help.
func waitAfter(err error, growing *backoff.ExponentialBackOff) (time.Duration, bool) {
	var refused *RefusedError
	if errors.As(err, &refused) {
		if !refused.Retryable() {
			return 0, false
		}
		wait := max(refused.RetryAfter, time.Second)
		return wait + time.Duration(mathrand.Int64N(int64(wait/10)+1)), true
	}
	return growing.NextBackOff(), Unanswered(err)
}

// Unanswered says that an error means no more than that no broker answered in time, or
// that the one that did can't at the moment: the same call may succeed later.
func Unanswered(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded
}

func newBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 50 * time.Millisecond
	b.MaxInterval = 2 * time.Second
	return b
}

// refundNow repeats the Refund until the broker has it or says that it never
// will, for as long as [WithRefundTimeout] allows and a broker can be asked. Then
// it is kept.
func (c *Client) refundNow(ctx context.Context, reservation string, usage Usage) (*budgetv1.RefundResponse, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.options.refundTimeout)
	defer cancel()
	growing := newBackOff()
	for {
		answer, err := c.refund(ctx, reservation, usage, 0)
		if err == nil {
			return answer, nil
		}
		failed := &RefundError{Reservation: reservation, Usage: usage, Err: fmt.Errorf("reservation %s: %w", shortened(reservation), err)}
		if !Unanswered(err) {
			return nil, failed
		}
		if errors.Is(err, errNoneAsked) || ctx.Err() != nil || pause.For(ctx, growing.NextBackOff()) != nil {
			failed.Kept = c.kept.keep(reservation, usage, err)
			return nil, failed
		}
	}
}
