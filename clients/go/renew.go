package budget

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
)

// Verdict says what a call under way should do, by what it used so far.
type Verdict int32

// The verdicts, from the mildest on.
const (
	NoVerdict Verdict = iota // no usage was told
	Continue                 // less than 80 % of what it may use in all is used
	WindDown                 // come to an end within what remains
	Stop                     // nothing of some meter is left
)

// String is the verdict in the words of the protocol, "" for none.
func (v Verdict) String() string {
	switch v {
	case NoVerdict:
		return ""
	case Continue:
		return "continue"
	case WindDown:
		return "wind_down"
	case Stop:
		return "stop"
	}
	return fmt.Sprintf("verdict %d", int32(v))
}

// Renewal is what the broker answers to a Renew. Without a usage it is the end of
// the lease alone.
type Renewal struct {
	ExpiresAt time.Time
	Verdict   Verdict
	// Remaining is what may still be used of each meter that an enforced limit
	// counts, in its unit; not of requests, nor of the input_tokens of a model call,
	// which are whole from the start. An envelope that is told to wind down with 0
	// remaining is held by its calls, which may give some back.
	Remaining map[string]int64

	// Why the verdict is WindDown or Stop, and by which limit; Pool is empty of one of
	// the account itself, and all but Reason when the account is gone.
	Reason budgetv1.RenewReason
	Limit  string
	Pool   string
	Scope  string
	Meter  string
}

// Renew extends the lease to now + lease, if that is later, and tells what the call
// used so far, in all: a meter that is not named, 0. With a nil usage it tells
// nothing, and the answer has no verdict; an empty one tells nothing and asks for it.
// lease is 1 ms to 24 h; 0: as the reservation was made. In an envelope it ends with
// the envelope's at the latest.
//
// What was told never falls, and when the lease ends without a Refund at least that is
// charged. The error is ErrEnded when the reservation, or its envelope, is not held
// any more. One without ID never ends: its Renewal is the zero one.
func (c *Client) Renew(ctx context.Context, reservation string, lease time.Duration, usage *Usage) (Renewal, error) {
	var told *budgetv1.Usage
	if usage != nil {
		if usage.Unused {
			return Renewal{}, connect.NewError(connect.CodeInvalidArgument, errors.New("usage so far is Unused: state nothing instead"))
		}
		var err error
		if told, err = usage.told(); err != nil {
			return Renewal{}, err
		}
	}
	got, err := c.renew(ctx, reservation, lease, told, c.options.deadline)
	return got.Renewal, err
}

// renewed is a Renewal with how long the lease then runs, as far as that is known.
type renewed struct {
	Renewal
	left time.Duration
}

// renew is Renew with the patience that [ask] is to know of.
func (c *Client) renew(ctx context.Context, reservation string, lease time.Duration, told *budgetv1.Usage, patience time.Duration) (renewed, error) {
	if reservation == "" {
		return renewed{}, nil
	}
	request := &budgetv1.RenewRequest{ReservationId: reservation, Usage: told}
	if lease != 0 {
		request.Lease = durationpb.New(lease)
	}
	answer, err := ask(ctx, &c.brokers, attemptTimeout, patience, func(ctx context.Context, broker budgetv1connect.BudgetServiceClient) (*connect.Response[budgetv1.RenewResponse], error) {
		return broker.Renew(ctx, connect.NewRequest(request))
	})
	if connect.CodeOf(err) == connect.CodeFailedPrecondition {
		return renewed{}, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	if err != nil {
		return renewed{}, err
	}
	m := answer.Msg
	return renewed{
		Renewal: Renewal{
			ExpiresAt: m.ExpiresAt.AsTime(), Verdict: Verdict(m.Verdict), Remaining: m.Remaining,
			Reason: m.Reason, Limit: m.Limit, Pool: m.Pool, Scope: m.Scope, Meter: m.Meter,
		},
		left: leftOf(m.ExpiresAt.AsTime(), answer.Header().Get("Date")),
	}, nil
}

// leftOf is how long a lease runs by the later of two clocks: this process's, and
// the broker's, as its answer has it in whole seconds. So it is too short where they
// differ rather than too long, but for a second.
func leftOf(ends time.Time, date string) time.Duration {
	now := time.Now()
	if theirs, err := http.ParseTime(date); err == nil && theirs.After(now) {
		now = theirs
	}
	return ends.Sub(now)
}
