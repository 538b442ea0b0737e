package reservation

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Release ends a held reservation as an operator: everything is given back, as
// by an unused Refund. A Refund of its caller afterwards is a conflict, unless
// it says unused too. One whose lease has ended holds nothing any more and is
// left alone, in the engine's own step, so that a late Refund still counts. Of
// one that the engine lost the lease that it was made with counts. An engine that
// does not answer can't tell, so nothing is released then.
//
// Errors: as Refund, ErrNotHeld, and ErrUnavailable when the engine is silent.
func (b *Broker) Release(ctx context.Context, reservation string) (Receipt, error) {
	return b.close(ctx, reservation, Usage{Unused: true}, true)
}

// notHeldSince is ErrNotHeld of a lease that ended then, or at an instant that
// is not known (zero).
func notHeldSince(end time.Time) error {
	if end.IsZero() {
		return fmt.Errorf("the lease has ended: %w", ErrNotHeld)
	}
	return fmt.Errorf("the lease ended at %s: %w", end.UTC().Format("2006-01-02T15:04:05.000Z07:00"), ErrNotHeld)
}

// engineError says ErrUnavailable of an engine that did not answer in time.
func engineError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
