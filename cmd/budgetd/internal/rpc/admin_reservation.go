package rpc

import (
	"context"

	"connectrpc.com/connect"

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
			Labels: r.Labels, Holds: holdsOut(r.Holds), Degraded: r.Degraded,
		})
	}
	return connect.NewResponse(answer), nil
}

// ReleaseReservation implements budgetv1connect.AdminServiceHandler.
func (a *admin) ReleaseReservation(ctx context.Context, request *connect.Request[budgetv1.ReleaseReservationRequest]) (*connect.Response[budgetv1.ReleaseReservationResponse], error) {
	id := request.Msg.ReservationId
	receipt, err := a.broker.Release(ctx, id)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	if !receipt.Replayed {
		account, _ := a.broker.AccountOf(id) // Release has opened it
		a.changed(ctx, "a reservation was released", "account", account)
	}
	return connect.NewResponse(&budgetv1.ReleaseReservationResponse{
		GivenBack: amountsOut(receipt.GivenBack), State: stateOut(reservation.StateSettled, receipt.Late, receipt.Released), Replayed: receipt.Replayed,
	}), nil
}
