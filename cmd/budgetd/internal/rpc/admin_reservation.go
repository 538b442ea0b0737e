package rpc

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/budgetd/budgetd/ledger"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/reservation"
)

// ListReservations implements budgetv1connect.AdminServiceHandler.
func (a *admin) ListReservations(ctx context.Context, request *connect.Request[budgetv1.ListReservationsRequest]) (*connect.Response[budgetv1.ListReservationsResponse], error) {
	m := request.Msg
	if err := accountName("account", m.Account); err != nil {
		return nil, err
	}
	size, err := pageSize(m.PageSize, defaultPage, maxPage)
	if err != nil {
		return nil, err
	}
	page, err := a.broker.OpenReservations(ctx, m.Account, m.PageToken, size)
	if err != nil {
		return nil, a.forAccount(ctx, m.Account, err, inNothing)
	}
	answer := &budgetv1.ListReservationsResponse{NextPageToken: page.Cursor}
	for i := range page.Reservations {
		r := &page.Reservations[i]
		answer.Reservations = append(answer.Reservations, &budgetv1.OpenReservation{
			ReservationId: r.Reservation, CreatedAt: timeOut(r.Minted), ExpiresAt: timeOut(r.ExpiresAt),
			Labels: r.Labels, Holds: holdsOut(r.Holds), Degraded: r.Degraded, Parent: parentOut(r.Parent),
		})
	}
	return connect.NewResponse(answer), nil
}

// ReleaseReservation implements budgetv1connect.AdminServiceHandler.
func (a *admin) ReleaseReservation(ctx context.Context, request *connect.Request[budgetv1.ReleaseReservationRequest]) (*connect.Response[budgetv1.ReleaseReservationResponse], error) {
	id := request.Msg.ReservationId
	if err := required("reservationId", id, reservation.MaxTokenText); err != nil {
		return nil, err
	}
	if err := reasonIn(request.Msg.Reason); err != nil {
		return nil, err
	}
	receipt, err := a.broker.Release(ctx, id)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	if !receipt.Replayed {
		account, reserved, _ := a.broker.Identify(id) // Release has opened it
		a.changed(ctx, "a reservation was released", "account", account, "reservation", hex.EncodeToString(reserved[:]), "reason", request.Msg.Reason)
	}
	return connect.NewResponse(&budgetv1.ReleaseReservationResponse{
		GivenBack: amountsOut(receipt.GivenBack), State: stateOut(reservation.StateSettled, receipt.Late, receipt.Released), Replayed: receipt.Replayed,
	}), nil
}

// reasonIn checks why an operator does something, which is logged.
func reasonIn(reason string) error {
	if err := required("reason", reason, ledger.MaxReasonBytes); err != nil {
		return err
	}
	if !utf8.ValidString(reason) || strings.ContainsFunc(reason, unicode.IsControl) {
		return invalid(&budgetv1.InvalidField{Field: "reason", Problem: "is no line of text", Bound: fmt.Sprintf("1 to %d bytes of UTF-8 without control characters", ledger.MaxReasonBytes)})
	}
	return nil
}
