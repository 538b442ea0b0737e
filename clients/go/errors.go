package budget

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/budgetd/budgetd/clients/go/internal/pause"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// ErrEnded says that a reservation is not held any more: it was refunded, or
// its lease ended.
var ErrEnded = errors.New("reservation has ended")

// StoppedError is the cause ([context.Cause]) with which a call's context ends before
// the call does: the broker says that it is to stop, or it is over.
type StoppedError struct {
	// Renewal is the verdict, which names limit, meter and reason; the zero one where
	// Err is set.
	Renewal Renewal
	// Err is ErrEnded when the reservation, or its envelope, is not held any more:
	// it was closed, or its lease ended. nil: the verdict is Stop.
	Err error
}

func (e *StoppedError) Error() string {
	switch {
	case e.Err != nil:
		return fmt.Sprintf("the call is to stop: its %v", e.Err)
	case e.Renewal.Reason == budgetv1.RenewReason_RENEW_REASON_ACCOUNT_REMOVED:
		return "the call is to stop: its account was removed"
	case e.Renewal.Reason == budgetv1.RenewReason_RENEW_REASON_ENVELOPE:
		return fmt.Sprintf("the call is to stop: its envelope has no %s left, by the limit %q", e.Renewal.Meter, e.Renewal.Limit)
	}
	return fmt.Sprintf("the call is to stop: no %s is left, by the limit %q", e.Renewal.Meter, e.Renewal.Limit)
}

// Unwrap returns Err.
func (e *StoppedError) Unwrap() error { return e.Err }

// RefusedError says that a limit refused.
type RefusedError struct {
	Refusal *budgetv1.Refusal // which limit and scope, how much is left, when to come back
	// RetryAfter is how long the broker asked to wait; 0 when waiting does not
	// help. When it is stated though the refusal is not retryable, the quota
	// resets later than a caller should wait: it is then how often at most to ask
	// whether a grant or a larger plan has come meanwhile.
	RetryAfter time.Duration
	// LimitHeaders are RateLimit, RateLimit-Policy and Budget-Limited-By of the
	// limit that refused.
	LimitHeaders http.Header
	Err          error // the *connect.Error
}

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the *connect.Error.
func (e *RefusedError) Unwrap() error { return e.Err }

// Retryable says whether to wait and ask again: the same request can pass soon
// enough.
func (e *RefusedError) Retryable() bool { return e.Refusal.GetRetryable() }

// NeverFits says that the call asked for more than the limit can ever hold.
func (e *RefusedError) NeverFits() bool {
	return e.Refusal.GetReason() == budgetv1.RefusalReason_REFUSAL_REASON_EXCEEDS_CAPACITY
}

// ResetsAt is when the limit is whole again by itself; of a quota, when its
// period ends. Zero: never, or not known.
func (e *RefusedError) ResetsAt() time.Time {
	if e.Refusal.GetResetsAt() == nil {
		return time.Time{}
	}
	return e.Refusal.ResetsAt.AsTime()
}

// RefundError says that a Refund could not be delivered in time, or was refused.
type RefundError struct {
	Reservation string
	Usage       Usage
	// Kept says that the Refund is tried again in the background, and has not
	// failed yet. Else it is lost: the broker takes the hold back by itself when the
	// lease ends, and what the call used is not known to it unless the Refund is
	// repeated.
	Kept bool
	Err  error
}

func (e *RefundError) Error() string {
	return fmt.Sprintf("refund was not delivered: %v", e.Err)
}

// Unwrap returns the reason.
func (e *RefundError) Unwrap() error { return e.Err }

// AsRefusal turns an error with a Refusal as its detail (resource_exhausted, or
// permission_denied where the broker answers so for quotas that are used up) into
// a *RefusedError, and leaves every other error alone.
func AsRefusal(err error) error {
	var rpc *connect.Error
	if !errors.As(err, &rpc) || rpc.Code() != connect.CodeResourceExhausted && rpc.Code() != connect.CodePermissionDenied {
		return err
	}
	for _, detail := range rpc.Details() {
		value, err := detail.Value()
		if err != nil {
			continue
		}
		if refusal, ok := value.(*budgetv1.Refusal); ok {
			return &RefusedError{Refusal: refusal, RetryAfter: pause.Asked(rpc.Meta(), time.Now()), LimitHeaders: limitHeadersOf(rpc.Meta()), Err: rpc}
		}
	}
	return err
}
