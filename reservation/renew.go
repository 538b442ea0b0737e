package reservation

import (
	"context"
	"fmt"
	"time"
)

// Renew extends a reservation's lease to now + lease, if that is later, and
// returns its end. lease nil means the lease that it was made with.
//
// A reservation that the engine has lost is brought back, as long as its lease
// can't have ended: the caller holds its token, and works on.
//
// Errors: *InvalidError, ErrNotFound, ErrNotHeld, ErrUnavailable.
func (b *Broker) Renew(ctx context.Context, reservation string, lease *time.Duration) (time.Time, error) {
	token, raw, err := b.open(reservation)
	if err != nil {
		return time.Time{}, err
	}
	if token.Charge {
		return time.Time{}, fmt.Errorf("a charge is settled from the start: %w", ErrNotHeld)
	}
	renewed := token.Lease
	if lease != nil {
		if renewed, err = checkedLease(*lease); err != nil {
			return time.Time{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, b.config.Deadline)
	defer cancel()
	answer, err := b.renew(ctx, token, raw, renewed)
	if err != nil {
		return time.Time{}, err
	}
	b.metrics.reclaimed(answer.Reclaimed)
	b.metrics.renewed(answer.State)
	switch answer.State {
	case StateHeld:
		b.registry.renewed(token.ID, raw, answer.ExpiresAt)
		return answer.ExpiresAt, nil
	case StateUnknown:
		return time.Time{}, fmt.Errorf("the engine does not know this reservation: %w", ErrNotHeld)
	}
	b.registry.closed(token.ID)
	return time.Time{}, ErrNotHeld
}

// renew asks the engine, and brings the reservation back if the engine has lost
// it: a record outlives its lease, so one that is not there and whose lease
// can't have ended was lost. Its end may have been lost with it; then the hold
// counts until the new lease's end, when the ledger's closing is adopted.
func (b *Broker) renew(ctx context.Context, token *reservationToken, raw []byte, lease time.Duration) (RenewAnswer, error) {
	request := RenewRequest{Account: token.Account, ID: token.ID, Lease: lease}
	answer, err := b.Store.Renew(ctx, request)
	if err != nil || answer.State != StateUnknown {
		return answer, err
	}
	e := b.registry.findOr(token, raw)
	if e.expiresAt <= answer.Now.UnixMicro() {
		return answer, nil
	}
	expiresAt := answer.Now.Add(lease)
	if held := time.UnixMicro(e.expiresAt).UTC(); held.After(expiresAt) {
		expiresAt = held
	}
	verdict, err := b.restore(ctx, token, &e, expiresAt)
	switch {
	case err != nil:
		return RenewAnswer{}, err
	case verdict == Restored:
		return RenewAnswer{State: StateHeld, Now: answer.Now, ExpiresAt: expiresAt}, nil
	case verdict == RestoreKnown: // another broker was faster
		return b.Store.Renew(ctx, request)
	}
	return answer, nil
}
