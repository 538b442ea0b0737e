package budget

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
)

// Reserve asks once, each of the brokers until one answers. A refusal is a
// *[RefusedError]. When none answers within the deadline the request's WhenDown
// decides. Whoever reserves must Refund, on every path; [Client.Do] does it all.
//
// A reservation that was given a start ahead, by [Request.MaxWait] or a limit that
// is a leaky queue, is returned when that has come: the call may be made at once. Its
// lease runs from then.
//
// When ctx ends first, Reserve returns at once. What a broker may have taken by
// then, or for an answer that was lost, is given back in the background, unless the
// request has a Key: then whoever repeats it finds it. While it waits for its start
// that is a *[NotStartedError].
func (c *Client) Reserve(ctx context.Context, request Request) (*Reservation, error) {
	attempt := c.attempt(request, "reserve-")
	reservation, err := attempt.reserve(ctx)
	return attempt.granted(ctx, reservation, err)
}

// granted ends an attempt: with its reservation once that has started.
func (a *attempt) granted(ctx context.Context, reservation *Reservation, err error) (*Reservation, error) {
	a.finish(reservation)
	if err != nil {
		return nil, err
	}
	if err := a.untilStart(ctx, reservation); err != nil {
		return nil, err
	}
	return reservation, nil
}

// attempt is one call's way to its reservation, by however many Reserves of one key.
type attempt struct {
	client  *Client
	request Request
	named   bool // by the caller, who may repeat it
	doubt   bool // some Reserve may have been executed without an answer
}

func (c *Client) attempt(request Request, prefix string) *attempt {
	named := request.Key != ""
	if !named {
		request.Key = prefix + rand.Text()
	}
	return &attempt{client: c, request: request, named: named}
}

// reserve asks once. It does not wait for the brokers longer than for ctx: what
// they answer then is given back.
func (a *attempt) reserve(ctx context.Context) (*Reservation, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx.Err())
	}
	if err := a.request.readable(); err != nil {
		return nil, err
	}
	within := a.client.options.deadline
	deadline, bounded := ctx.Deadline()
	if bounded {
		within = min(within, time.Until(deadline))
	}
	request := a.request
	if bounded && request.MaxWait > 0 {
		// A start after the caller's end would be booked for nothing.
		request.MaxWait = min(request.MaxWait, max(time.Until(deadline), time.Microsecond))
	}
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	answered := make(chan answer, 1)
	go func() {
		defer cancel()
		answered <- a.client.askInTurn(detached, request, within)
	}()
	var got answer
	select {
	case got = <-answered:
	case <-ctx.Done():
		a.leave(answered, cancel)
		return nil, ended(ctx.Err())
	}
	a.doubt = a.doubt || got.doubt
	if Unanswered(got.err) {
		if bounded && !time.Now().Before(deadline) {
			return nil, got.err
		}
		return a.client.whenDown(a.request).decide(a.request, got.err)
	}
	return got.reservation, got.err
}

// leave gives back what comes of a Reserve whose caller has gone.
func (a *attempt) leave(answered <-chan answer, cancel context.CancelFunc) {
	if a.named {
		cancel()
		return
	}
	left := *a
	if a.client.background.begin(func() {
		got := <-answered
		left.doubt = left.doubt || got.doubt
		left.finish(got.reservation)
		if got.reservation != nil {
			// One that fails is kept, or the lost Refund of nothing used.
			_, _ = left.client.refundNow(context.Background(), got.reservation.ID, Unused())
		}
	}) {
		a.doubt = false
		return
	}
	a.doubt = true // too many are left already: it is for the queue
	cancel()
}

// finish has what may have been held, and is not what was granted, given back.
func (a *attempt) finish(granted *Reservation) {
	if !a.doubt || a.named {
		return
	}
	except := ""
	if granted != nil && granted.ID != "" {
		if !granted.Degraded {
			return // the engine knew the key: there is one reservation of it
		}
		except = granted.ID
	}
	a.client.kept.keepReserve(a.request, except)
}

// answer is what came of one Reserve.
type answer struct {
	reservation *Reservation
	err         error
	doubt       bool // a broker may have granted it and could not say so
}

// askInTurn is askForOne, again and again where a broker holds the call for a slot: it
// refuses it when the deadline of one Reserve is near, and its key keeps its place while
// it is repeated. So a broker that is dead is not waited for longer than for others.
func (c *Client) askInTurn(ctx context.Context, request Request, within time.Duration) answer {
	until := time.Now().Add(request.MaxWait)
	for doubt := false; ; {
		asked := time.Now()
		got := c.askForOne(ctx, request, within)
		doubt = doubt || got.doubt
		got.doubt = doubt
		var refused *RefusedError
		wasHeld := errors.As(got.err, &refused) && refused.Refusal.Reason == budgetv1.RefusalReason_REFUSAL_REASON_CONCURRENCY_LIMITED && time.Since(asked) > within/2
		left := time.Until(until)
		if !wasHeld || left <= 0 || ctx.Err() != nil {
			return got
		}
		request.MaxWait = max(left.Truncate(time.Microsecond), time.Microsecond)
	}
}

// askForOne asks each broker until one answers.
func (c *Client) askForOne(ctx context.Context, request Request, within time.Duration) answer {
	var got answer
	response, err := ask(ctx, &c.brokers, within, c.options.deadline, func(ctx context.Context, broker budgetv1connect.BudgetServiceClient) (*connect.Response[budgetv1.ReserveResponse], error) {
		response, err := broker.Reserve(ctx, connect.NewRequest(request.message()))
		got.doubt = got.doubt || inDoubt(err)
		return response, err
	})
	if err != nil {
		got.err = AsRefusal(err)
		return got
	}
	m := response.Msg
	if m.State != budgetv1.ReservationState_RESERVATION_STATE_HELD {
		got.err = fmt.Errorf("%w: the reservation of this key is %s", ErrEnded, m.State)
		return got
	}
	got.reservation = &Reservation{
		ID: m.ReservationId, ExpiresAt: m.ExpiresAt.AsTime(), Holds: m.Holds, Degraded: m.Degraded,
		Estimate: m.Estimate, GrantedMaxOutputTokens: m.GrantedMaxOutputTokens,
		ShadowRefusals: m.ShadowRefusals,
		LimitHeaders:   limitHeadersOf(response.Header()),
		left:           leftOf(m.ExpiresAt.AsTime(), response.Header().Get("Date")),
	}
	if m.StartAt != nil {
		got.reservation.StartAt = m.StartAt.AsTime()
	}
	if wait := m.StartsIn.AsDuration(); wait > 0 {
		// From the answer on, which is later than the decision: by this clock, whose
		// steps do not matter, and never too early.
		got.reservation.starts = time.Now().Add(wait)
	}
	return got
}

// inDoubt says whether a call that failed may have been executed. An error that a
// broker sent is its decision, unless it says that it does not know; of all others
// only a connection that was never made rules it out.
func inDoubt(err error) bool {
	if err == nil {
		return false
	}
	if connect.IsWireError(err) {
		switch connect.CodeOf(err) {
		case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeInternal, connect.CodeUnknown:
			return true
		}
		return false
	}
	var connection *net.OpError
	return !errors.As(err, &connection) || connection.Op != "dial"
}

// ended is the error of a call whose context has ended, as connect has it.
func ended(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	}
	return connect.NewError(connect.CodeCanceled, err)
}

// deliverKept tries one call that is kept. A Reserve is asked again by its key: the
// broker answers what it holds, or takes it now, and either is refunded.
func (c *Client) deliverKept(ctx context.Context, call *keptCall) error {
	if call.reserve != nil {
		message := &budgetv1.ReserveRequest{}
		if err := proto.Unmarshal(call.reserve, message); err != nil {
			return err
		}
		response, err := ask(ctx, &c.brokers, c.options.deadline, 0, func(ctx context.Context, broker budgetv1connect.BudgetServiceClient) (*connect.Response[budgetv1.ReserveResponse], error) {
			return broker.Reserve(ctx, connect.NewRequest(message))
		})
		switch {
		case err != nil:
			return err // a refusal too: then it holds nothing
		case response.Msg.State != budgetv1.ReservationState_RESERVATION_STATE_HELD, response.Msg.ReservationId == call.except:
			return nil
		}
		call.reserve, call.reservation = nil, response.Msg.ReservationId
		call.giveUp = time.Now().Add(response.Msg.StartsIn.AsDuration() + message.Lease.AsDuration())
	}
	_, err := c.Refund(ctx, call.reservation, call.usage)
	return err
}
