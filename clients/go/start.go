package budget

import (
	"context"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/clients/go/internal/pause"
)

// NotStartedError says that the caller's context ended, or its deadline is, before
// the start that its reservation was given.
type NotStartedError struct {
	Reservation *Reservation
	// In is how long the start was still ahead.
	In time.Duration
	// Held says that the request had a Key, so that the reservation was left as it
	// is: whoever asks again by that key gets the same start. Else it was given
	// back, which may still be under way.
	Held bool
	Err  error // canceled or deadline_exceeded
}

func (e *NotStartedError) Error() string {
	return fmt.Sprintf("the call was to start in %v: %v", e.In.Round(time.Millisecond), e.Err)
}

// Unwrap returns the reason.
func (e *NotStartedError) Unwrap() error { return e.Err }

// untilStart waits until a reservation may be used, and gives it back when ctx ends
// before, at once when that is known beforehand.
func (a *attempt) untilStart(ctx context.Context, r *Reservation) error {
	wait := time.Until(r.starts)
	if r.starts.IsZero() || wait <= 0 {
		return nil
	}
	err := context.DeadlineExceeded
	if deadline, ok := ctx.Deadline(); !ok || !r.starts.After(deadline) {
		if err = pause.For(ctx, wait); err == nil {
			return nil
		}
	}
	if !a.named {
		a.client.giveBack(r.ID)
	}
	return &NotStartedError{Reservation: r, In: max(time.Until(r.starts), 0), Held: a.named, Err: ended(err)}
}

// giveBack refunds in the background what was not used.
func (c *Client) giveBack(reservation string) {
	if !c.background.begin(func() {
		// One that fails is kept, or the lost Refund of nothing used.
		_, _ = c.refundNow(context.Background(), reservation, Unused())
	}) {
		c.kept.keep(reservation, Unused(), errTooManyRun)
	}
}
