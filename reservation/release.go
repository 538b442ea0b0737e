package reservation

import (
	"context"
	"errors"
	"fmt"
)

// Release ends a held reservation as an operator: everything is given back, as
// by an unused Refund. A Refund of its caller afterwards is a conflict, unless
// it says unused too. One whose lease has ended holds nothing any more and is
// left alone, so that a late Refund still counts.
//
// Errors: as Refund, and ErrNotHeld.
func (b *Broker) Release(ctx context.Context, reservation string) (Receipt, error) {
	token, _, err := b.open(reservation)
	if err != nil {
		return Receipt{}, err
	}
	engine, cancel := context.WithTimeout(ctx, b.config.Deadline)
	record, err := b.Store.Lookup(engine, token.Account, token.ID)
	cancel()
	switch {
	case err != nil && !silent(err):
		return Receipt{}, err
	case err == nil && record.State == StateExpired:
		return Receipt{}, fmt.Errorf("the lease ended at %s: %w", record.ExpiresAt.UTC().Format("2006-01-02T15:04:05.000Z07:00"), ErrNotHeld)
	}
	return b.Refund(ctx, reservation, Usage{Unused: true})
}

// silent says whether the engine did not answer.
func silent(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// engineError says ErrUnavailable of an engine that did not answer in time.
func engineError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
