package reservation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// Renew extends a reservation's lease to now + lease, if that is later, and
// returns its end. With a usage it says whether the call may go on. What was told
// stays: when the lease ends without a Refund, it is charged that at least.
//
// A reservation that the engine has lost is brought back, as long as its lease
// can't have ended: the caller holds its token, and works on.
//
// Errors: *InvalidError, ErrNotFound, ErrNotHeld, ErrUnavailable.
func (b *Broker) Renew(ctx context.Context, reservation string, r Renewal) (Renewed, error) {
	token, raw, err := b.open(reservation)
	if err != nil {
		return Renewed{}, err
	}
	if token.Charge {
		return Renewed{}, fmt.Errorf("a charge is settled from the start: %w", ErrNotHeld)
	}
	request := RenewRequest{Account: token.Account, ID: token.ID, Lease: token.Lease}
	if r.Lease != nil {
		if request.Lease, err = checkedLease(*r.Lease); err != nil {
			return Renewed{}, err
		}
	}
	var decides []bool
	removed := false
	if r.Usage != nil {
		if r.Usage.Unused {
			return Renewed{}, &InvalidError{Field: "usage.unused", Problem: "is set", Bound: "a usage so far, which may state nothing"}
		}
		seen, err := b.countSeen(ctx, token, *r.Usage)
		if err != nil {
			return Renewed{}, err
		}
		reported, err := r.Usage.reported(token.Price, seen)
		if err != nil {
			return Renewed{}, err
		}
		if request.Used, err = token.usedSoFar(reported); err != nil {
			return Renewed{}, err
		}
		request.Peek, decides, err = token.peek(b.Policies.Current())
		if removed = errors.Is(err, quota.ErrUnknownAccount); err != nil && !removed {
			return Renewed{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, b.config.Deadline)
	defer cancel()
	answer, err := b.renew(ctx, token, raw, request)
	if err != nil {
		return Renewed{}, err
	}
	b.metrics.reclaimed(answer.Reclaimed)
	b.metrics.renewed(answer.State)
	switch answer.State {
	case StateHeld:
		b.registry.renewed(token.ID, raw, answer.ExpiresAt)
	case StateUnknown:
		return Renewed{}, fmt.Errorf("the engine does not know this reservation: %w", ErrNotHeld)
	default:
		b.registry.closed(token.ID)
		return Renewed{}, ErrNotHeld
	}
	switch {
	case r.Usage == nil:
		return Renewed{ExpiresAt: answer.ExpiresAt}, nil
	case removed:
		return Renewed{ExpiresAt: answer.ExpiresAt, Verdict: Stop, Tightest: &Tightest{Reason: AccountRemoved}}, nil
	}
	return token.verdict(&answer, decides), nil
}

// renew asks the engine, and brings the reservation back if the engine has lost
// it: a record outlives its lease, so one that is not there and whose lease
// can't have ended was lost. Its end may have been lost with it; then the hold
// counts until the new lease's end, when the ledger's closing is adopted.
func (b *Broker) renew(ctx context.Context, token *reservationToken, raw []byte, request RenewRequest) (RenewAnswer, error) {
	answer, err := b.Store.Renew(ctx, request)
	if err != nil || answer.State != StateUnknown {
		return answer, err
	}
	e := b.registry.findOr(token, raw)
	if e.expiresAt <= answer.Now.UnixMicro() {
		return answer, nil
	}
	expiresAt := answer.Now.Add(request.Lease)
	if held := time.UnixMicro(e.expiresAt).UTC(); held.After(expiresAt) {
		expiresAt = held
	}
	verdict, err := b.restore(ctx, token, &e, expiresAt)
	switch {
	case err != nil:
		return RenewAnswer{}, err
	case verdict == Restored && request.Used == nil:
		return RenewAnswer{State: StateHeld, Now: answer.Now, ExpiresAt: expiresAt}, nil
	case verdict == Restored, verdict == RestoreKnown: // another broker was faster
		return b.Store.Renew(ctx, request)
	}
	return answer, nil
}
