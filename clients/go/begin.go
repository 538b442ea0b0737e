package budget

import (
	"context"
	"errors"
	"maps"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// Running is a reservation whose lease is kept alive until End. It is for calls
// that do not end in the function that began them, such as streams; [Client.Do]
// is for all others.
type Running struct {
	*Reservation
	client  *Client
	request Request
	ctx     context.Context
	cancel  context.CancelCauseFunc
}

// Begin reserves and renews the lease in the background, at a third of its
// length, until End is called, whatever becomes of ctx. It asks once: a refusal
// is a *[RefusedError]. As [Client.Reserve] it waits for a start that is ahead.
// Whoever begins must End, on every path.
func (c *Client) Begin(ctx context.Context, request Request) (*Running, error) {
	reservation, err := c.Reserve(ctx, request)
	if err != nil {
		return nil, err
	}
	return c.keep(ctx, reservation, request), nil
}

func (c *Client) keep(ctx context.Context, reservation *Reservation, request Request) *Running {
	request.LLM = nil // a whole body perhaps, and nobody needs it any more
	running := &Running{Reservation: reservation, client: c, request: request}
	running.ctx, running.cancel = context.WithCancelCause(ctx)
	if reservation.ID != "" {
		reservation.keeper = c.keepAlive(ctx, reservation, request, running.cancel)
	}
	return running
}

// SetUsed says what the call used so far, in all, per meter: the renewals of its lease
// tell it, and whether to go on is heard through [Request].OnVerdict and the end of the
// call's context, whose cause is then a *[StoppedError]. It never blocks and may be
// called as often as one likes. An amount below one that was told is ignored.
//
// Once it was called, the lease is renewed every 10 s at least, and a second after much
// was used: a tenth of what remained. If the call ends without a usage, what was told
// counts, and of other meters what was held. Of an envelope it is what was used outside
// of its calls. At most 32 meters are told. A Reservation that [Client.Reserve] returned
// is kept alive by nobody: there it does nothing.
func (r *Reservation) SetUsed(amounts map[string]int64) {
	if r.keeper != nil {
		r.keeper.setUsed(amounts)
	}
}

// Context is Begin's, which also ends when the call is to stop, with a *[StoppedError]
// as its cause, and at End.
func (r *Running) Context() context.Context { return r.ctx }

// stopped is why the broker ended the call's context; nil: it did not.
func (r *Running) stopped() *StoppedError {
	var stopped *StoppedError
	errors.As(context.Cause(r.ctx), &stopped)
	return stopped
}

// told says whether the call said what it used so far.
func (r *Running) told() bool { return r.keeper != nil && r.keeper.usedSoFar() != nil }

// StopRenewing lets the lease run out. End still counts what the call used.
func (r *Running) StopRenewing() {
	if r.keeper != nil {
		r.keeper.stop()
	}
}

// End stops renewing and refunds what the call used. The zero Usage says that
// nobody knows more than was told by [Reservation.SetUsed]: everything else that was
// held counts as used. End does not depend on
// ctx's end; it is repeated, up to [WithRefundTimeout], until the broker has it,
// and else fails with a *[RefundError], which says whether it is kept and tried
// again in the background. Call it once, or again with another usage when the
// broker refused the first as invalid.
func (r *Running) End(ctx context.Context, usage Usage) (*budgetv1.RefundResponse, error) {
	r.StopRenewing()
	r.cancel(nil)
	if usage.isZero() {
		usage = unknown(r.request)
		if r.keeper != nil {
			maps.Copy(usage.Amounts, r.keeper.usedSoFar())
		}
	}
	return r.client.refundNow(ctx, r.ID, usage)
}

// EndInBackground is End for a caller that has somebody else to answer. It returns
// at once, unless 256 of them are under way already, or the Client is closed: then
// it ends first. ended, if it is not nil, is called with End's results.
// [Client.Close] waits for it.
func (r *Running) EndInBackground(ctx context.Context, usage Usage, ended func(*budgetv1.RefundResponse, error)) {
	end := func() {
		response, err := r.End(ctx, usage)
		if ended != nil {
			ended(response, err)
		}
	}
	if !r.client.background.begin(end) {
		end()
	}
}
