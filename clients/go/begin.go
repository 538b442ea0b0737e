package budget

import (
	"context"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// Running is a reservation whose lease is kept alive until End. It is for calls
// that do not end in the function that began them, such as streams; [Client.Do]
// is for all others.
type Running struct {
	*Reservation
	client  *Client
	request Request
	stop    func()
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
	running := &Running{Reservation: reservation, client: c, request: request, stop: func() {}}
	if reservation.ID != "" {
		running.stop = c.renewInBackground(ctx, reservation.ID, request.lease())
	}
	return running
}

// StopRenewing lets the lease run out. End still counts what the call used.
func (r *Running) StopRenewing() { r.stop() }

// End stops renewing and refunds what the call used. The zero Usage says that
// nobody knows: everything that was held counts as used. End does not depend on
// ctx's end; it is repeated, up to [WithRefundTimeout], until the broker has it,
// and else fails with a *[RefundError], which says whether it is kept and tried
// again in the background. Call it once, or again with another usage when the
// broker refused the first as invalid.
func (r *Running) End(ctx context.Context, usage Usage) (*budgetv1.RefundResponse, error) {
	r.stop()
	if usage.isZero() {
		usage = unknown(r.request)
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
