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
	if m.Usage == nil {
		return reservation.Usage{Unused: m.Unused}, nil
	}
	usage, err := usageOf(m.Usage)
	if usage.Unused = m.Unused; err != nil {
		return usage, err
	}
	if usage.Amounts == nil && usage.Use == nil && usage.ProviderUsage == nil && usage.SeenText == "" {
		return usage, invalid(&budgetv1.InvalidField{Field: "usage", Problem: "states nothing", Bound: "amounts, tokens, units or providerUsage; if the call was not made, leave usage out and set unused"})
	}
	return usage, nil
}

// usageOf reads a usage, which may state nothing.
func usageOf(m *budgetv1.Usage) (usage reservation.Usage, err error) {
	object, err := usageObjectIn("usage", m.Provider, m.ProviderUsage)
	if err != nil {
		return usage, err
	}
	if m.Provider != "" && object == nil {
		return usage, invalid(&budgetv1.InvalidField{Field: "usage.provider", Problem: "is stated without providerUsage", Bound: "both or none"})
	}
	usage.Amounts = amountsIn(m.Amounts)
	if usage.Use, err = useIn("usage", m.Tokens, m.Units, m.Served); err != nil {
		return usage, err
	}
	usage.Provider, usage.ProviderUsage, usage.SeenText = m.Provider, object, m.SeenText
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
	renewal := reservation.Renewal{Lease: lease}
	if m.Usage != nil {
		usage, err := usageOf(m.Usage)
		if err != nil {
			return nil, s.asConnect(ctx, err, inRefund)
		}
		renewal.Usage = &usage
	}
	renewed, err := s.broker.Renew(ctx, m.ReservationId, renewal)
	if err != nil {
		return nil, s.asConnect(ctx, err, inRefund)
	}
	return connect.NewResponse(renewedOut(renewed)), nil
}

func renewedOut(r reservation.Renewed) *budgetv1.RenewResponse {
	out := &budgetv1.RenewResponse{ExpiresAt: timeOut(r.ExpiresAt), Verdict: verdicts[r.Verdict]}
	if len(r.Remaining) > 0 {
		out.Remaining = amountsOut(r.Remaining)
	}
	if t := r.Tightest; t != nil {
		out.Reason, out.Limit, out.Pool, out.Scope, out.Meter = stopReasons[t.Reason], t.Limit, t.Pool, t.Scope, string(t.Meter)
	}
	return out
}

var verdicts = map[reservation.Verdict]budgetv1.RenewVerdict{
	reservation.GoOn:     budgetv1.RenewVerdict_RENEW_VERDICT_CONTINUE,
	reservation.WindDown: budgetv1.RenewVerdict_RENEW_VERDICT_WIND_DOWN,
	reservation.Stop:     budgetv1.RenewVerdict_RENEW_VERDICT_STOP,
}

var stopReasons = map[reservation.StopReason]budgetv1.RenewReason{
	reservation.LimitUsed:      budgetv1.RenewReason_RENEW_REASON_LIMIT,
	reservation.EnvelopeUsed:   budgetv1.RenewReason_RENEW_REASON_ENVELOPE,
	reservation.AccountRemoved: budgetv1.RenewReason_RENEW_REASON_ACCOUNT_REMOVED,
}
