package rpc

import (
	"context"

	"connectrpc.com/connect"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/reservation"
)

// Refund implements budgetv1connect.BudgetServiceHandler.
func (s *service) Refund(ctx context.Context, request *connect.Request[budgetv1.RefundRequest]) (*connect.Response[budgetv1.RefundResponse], error) {
	m := request.Msg
	if err := s.mayTouch(ctx, m.ReservationId); err != nil {
		return nil, s.asConnect(ctx, err, inRefund)
	}
	usage, err := usageIn(m)
	if err != nil {
		return nil, s.asConnect(ctx, err, inRefund)
	}
	receipt, err := s.broker.Refund(ctx, m.ReservationId, usage)
	if err != nil {
		return nil, s.asConnect(ctx, err, inRefund)
	}
	return connect.NewResponse(&budgetv1.RefundResponse{
		Charged:   amountsOut(receipt.Charged),
		GivenBack: amountsOut(receipt.GivenBack),
		Overrun:   amountsOut(receipt.Overrun),
		Late:      receipt.Late,
		Replayed:  receipt.Replayed,
		State:     stateOut(reservation.StateSettled, receipt.Late, receipt.Released),
		Holds:     holdsOut(receipt.Holds),
	}), nil
}

func usageIn(m *budgetv1.RefundRequest) (reservation.Usage, error) {
	usage := reservation.Usage{Unused: m.Unused}
	if m.Usage == nil {
		return usage, nil
	}
	object, err := usageObjectIn("usage", m.Usage.Provider, m.Usage.ProviderUsage)
	if err != nil {
		return usage, err
	}
	if m.Usage.Provider != "" && object == nil {
		return usage, invalid(&budgetv1.InvalidField{Field: "usage.provider", Problem: "is stated without providerUsage", Bound: "both or none"})
	}
	usage.Amounts = amountsIn(m.Usage.Amounts)
	if usage.Use, err = useIn("usage", m.Usage.Tokens, m.Usage.Units, m.Usage.Served); err != nil {
		return usage, err
	}
	usage.Provider, usage.ProviderUsage, usage.SeenText = m.Usage.Provider, object, m.Usage.SeenText
	if usage.Amounts == nil && usage.Use == nil && usage.ProviderUsage == nil && usage.SeenText == "" {
		return usage, invalid(&budgetv1.InvalidField{Field: "usage", Problem: "states nothing", Bound: "amounts, tokens, units or providerUsage; if the call was not made, leave usage out and set unused"})
	}
	return usage, nil
}

// Renew implements budgetv1connect.BudgetServiceHandler.
func (s *service) Renew(ctx context.Context, request *connect.Request[budgetv1.RenewRequest]) (*connect.Response[budgetv1.RenewResponse], error) {
	m := request.Msg
	if err := s.mayTouch(ctx, m.ReservationId); err != nil {
		return nil, s.asConnect(ctx, err, inNothing)
	}
	lease, err := leaseIn(m.Lease)
	if err != nil {
		return nil, err
	}
	expiresAt, err := s.broker.Renew(ctx, m.ReservationId, lease)
	if err != nil {
		return nil, s.asConnect(ctx, err, inNothing)
	}
	return connect.NewResponse(&budgetv1.RenewResponse{ExpiresAt: timeOut(expiresAt)}), nil
}
