package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/ledger"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// asConnect is the one table from errors of the domain to codes:
//
//	out of bounds                         invalid_argument, with InvalidField details
//	unknown, or somebody else's           not_found
//	idempotency key with another body     already_exists
//	closed otherwise, not held any more   failed_precondition
//	of a month that is not kept any more  failed_precondition
//	engine or ledger does not answer      unavailable
//	too much waits for the ledger         unavailable
//	text not counted in time              unavailable
//	caller hung up, or its time is over   canceled, deadline_exceeded
//	longer than a call may take           deadline_exceeded
//	anything else                         internal; the log has it
//
// A refusal is no error of the domain: see refused. in is where the fields of a
// model call are in the request.
func (b *base) asConnect(ctx context.Context, err error, in place) error {
	if err == nil {
		return nil
	}
	var (
		coded    *connect.Error
		field    *reservation.InvalidError
		call     *estimator.CallError
		tooLarge *estimator.TooLargeError
		model    *estimator.UnknownModelError
		down     *reservation.DownError
	)
	switch {
	case errors.As(err, &coded):
		return coded
	case errors.As(err, &field):
		return invalid(fieldOf(field, in))
	case errors.As(err, &call):
		return invalid(&budgetv1.InvalidField{Field: in.callField(call.Field), Problem: call.Reason})
	case errors.As(err, &tooLarge):
		return invalid(&budgetv1.InvalidField{
			Field:   in.callField(tooLarge.Field),
			Problem: "the text of the call is too long to count",
			Bound:   fmt.Sprintf("at most %d bytes; or count it yourself and state inputTokens", tooLarge.MaxBytes),
		})
	case errors.As(err, &model):
		return invalid(&budgetv1.InvalidField{Field: in.callField("model"), Problem: strings.TrimPrefix(model.Error(), "model: ")})
	case errors.Is(err, reservation.ErrKeyReused):
		return connect.NewError(connect.CodeAlreadyExists, errors.New("idempotencyKey: was used in this account with another request; use a new key, or repeat the first request as it was"))
	case errors.Is(err, reservation.ErrConflict):
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the reservation is closed with another usage; GetReservation tells with which"))
	case errors.Is(err, reservation.ErrParentUnknown):
		return connect.NewError(connect.CodeNotFound, errors.New("parent: is no reservation of this account"))
	case errors.Is(err, reservation.ErrParentEnded):
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("parent: that reservation is not held any more, or waits for its start: its lease has ended, it is closed, or its startAt is ahead; Reserve another envelope, or wait"))
	case errors.Is(err, reservation.ErrParentFull):
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("parent: at most %d reservations may be open in one tree, at most %d generations deep; end some of them first", reservation.MaxTreeOpen, reservation.MaxTreeDepth))
	case errors.Is(err, reservation.ErrNotHeld):
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the reservation is not held any more: its lease has ended, or it is closed; Reserve again"))
	case errors.Is(err, reservation.ErrNotFound), errors.Is(err, quota.ErrUnknownAccount):
		// Of accounts the handler knows the name and answers unknownAccount.
		return connect.NewError(connect.CodeNotFound, errors.New("the reservation is unknown, or is none that this key may use"))
	case errors.Is(context.Cause(ctx), errTooLong):
		return connect.NewError(connect.CodeDeadlineExceeded, errTooLong)
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled):
		return connect.NewError(connect.CodeCanceled, context.Canceled)
	case ctx.Err() != nil:
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the caller's own deadline has passed; whether the call took effect is unknown, repeat it"))
	case errors.Is(err, estimator.ErrBusy):
		return connect.NewError(connect.CodeUnavailable, errors.New("the text of the call was not counted in time: too much is being counted, or it is too long for the deadline; try again, or count it yourself and state inputTokens"))
	case errors.As(err, &down):
		return connect.NewError(connect.CodeUnavailable, fmt.Errorf("limit %s can't be checked at the moment, and its rule is to let nothing pass then; try again", down.Limit))
	case errors.Is(err, reservation.ErrStopping):
		return connect.NewError(connect.CodeUnavailable, errors.New("the broker is stopping, and the call waited for a slot; repeat it: with the same idempotencyKey it keeps its place"))
	case errors.Is(err, reservation.ErrUnavailable):
		return connect.NewError(connect.CodeUnavailable, errors.New("the broker's store does not answer at the moment; try again"))
	case errors.Is(err, ledger.ErrTooOld):
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the reservation is older than what the ledger keeps (setting ledger_retention); it can't be charged any more"))
	case errors.Is(err, ledger.ErrBusy):
		return connect.NewError(connect.CodeUnavailable, errors.New("too many Refunds and Charges wait for the ledger at the moment; repeat the same call after a moment"))
	case errors.Is(err, ledger.ErrUnavailable):
		return connect.NewError(connect.CodeUnavailable, errors.New("the ledger does not answer at the moment; repeat the same call"))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// Not the caller's context: one of ours, around a store.
		return connect.NewError(connect.CodeUnavailable, errors.New("a store did not answer in time; try again"))
	}
	b.log.Error("a call failed in a way that is not foreseen", "error", err)
	return connect.NewError(connect.CodeInternal, errInternal)
}

// unknownAccount answers for accounts that do not exist and for those that the
// caller may not use, which are deliberately not told apart.
func unknownAccount(name string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("account: %q is unknown, or is none that this key may use", name))
}

// forAccount is asConnect for calls that name an account.
func (b *base) forAccount(ctx context.Context, account string, err error, in place) error {
	if errors.Is(err, reservation.ErrNotFound) || errors.Is(err, quota.ErrUnknownAccount) {
		return unknownAccount(account)
	}
	return b.asConnect(ctx, err, in)
}

// invalid makes an invalid_argument error that says in words what its details
// say in fields.
func invalid(fields ...*budgetv1.InvalidField) *connect.Error {
	texts := make([]string, 0, len(fields))
	for _, field := range fields {
		text := field.Problem
		if field.Field != "" {
			text = field.Field + ": " + text
		}
		if field.Bound != "" {
			text += "; accepted: " + field.Bound
		}
		texts = append(texts, text)
	}
	err := connect.NewError(connect.CodeInvalidArgument, errors.New(strings.Join(texts, "\n")))
	for _, field := range fields {
		addDetail(err, field)
	}
	return err
}

func addDetail(err *connect.Error, message proto.Message) {
	// It fails only for a message that cannot be encoded, such as one with
	// text that is not UTF-8; the error's text says the same.
	if detail, failed := connect.NewErrorDetail(message); failed == nil {
		err.AddDetail(detail)
	}
}
