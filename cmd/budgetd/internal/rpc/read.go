package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// GetQuota implements budgetv1connect.BudgetServiceHandler.
func (s *service) GetQuota(ctx context.Context, request *connect.Request[budgetv1.GetQuotaRequest]) (*connect.Response[budgetv1.GetQuotaResponse], error) {
	account, err := s.account(ctx, request.Msg.Account)
	if err != nil {
		return nil, s.asConnect(ctx, err, inNothing)
	}
	view, err := s.broker.Overview(ctx, account, reservation.WithAPIKey(request.Msg.Labels, apiKey(ctx)))
	if err != nil {
		return nil, s.forAccount(ctx, account, err, inNothing)
	}
	answer := &budgetv1.GetQuotaResponse{
		Account:  view.Account,
		Plan:     view.Plan,
		Degraded: view.Degraded, LedgerAway: view.LedgerAway,
		Totals: amountsOut(view.Totals),
		TotalsPeriod: &budgetv1.CalendarPeriod{
			Start: timeOut(view.TotalsPeriod.Start),
			End:   timeOut(view.TotalsPeriod.End),
		},
	}
	for i := range view.Limits {
		limit := &view.Limits[i]
		if view.Degraded && limit.Kind != quota.KindQuota {
			continue // only the engine knows; quotas are in the ledger too
		}
		if view.LedgerAway && limit.Kind == quota.KindQuota && !limit.Level.Seeded {
			continue // only the ledger knows
		}
		answer.Limits = append(answer.Limits, limitOut(limit))
	}
	return connect.NewResponse(answer), nil
}

var kindsOut = map[quota.Kind]budgetv1.LimitKind{
	quota.KindBucket:         budgetv1.LimitKind_LIMIT_KIND_BUCKET,
	quota.KindSlots:          budgetv1.LimitKind_LIMIT_KIND_SLOTS,
	quota.KindQuota:          budgetv1.LimitKind_LIMIT_KIND_QUOTA,
	quota.KindGCRA:           budgetv1.LimitKind_LIMIT_KIND_GCRA,
	quota.KindFixedWindow:    budgetv1.LimitKind_LIMIT_KIND_FIXED_WINDOW,
	quota.KindSlidingCounter: budgetv1.LimitKind_LIMIT_KIND_SLIDING_WINDOW,
	quota.KindSlidingLog:     budgetv1.LimitKind_LIMIT_KIND_SLIDING_LOG,
	quota.KindLeakyQueue:     budgetv1.LimitKind_LIMIT_KIND_LEAKY_QUEUE,
}

func limitOut(limit *reservation.LimitStatus) *budgetv1.LimitStatus {
	out := &budgetv1.LimitStatus{
		Limit:       limit.Limit,
		Pool:        limit.Pool,
		Scope:       limit.Scope,
		Meter:       string(limit.Meter),
		LimitAmount: int64(limit.Max),
		Held:        int64(limit.Level.Held),
		Remaining:   int64(limit.Level.Remaining),
		ResetsAt:    timeOut(limit.Level.ResetsAt),
		Mode:        modesOut[limit.Mode],
		Pinned:      pinnedOut(limit.Stated, limit.Pin),
	}
	out.Kind = kindsOut[limit.Kind]
	for _, k := range limit.KeepFor {
		out.KeepFor = append(out.KeepFor, &budgetv1.KeptShare{Priority: k.Priority.String(), Percent: int32(k.Percent), Kept: int64(k.Kept)})
	}
	out.CountRefusals, out.BannedUntil = limit.CountRefusals, timeOut(limit.Level.BannedUntil)
	if limit.MaxWait != nil {
		out.MaxWait = durationpb.New(*limit.MaxWait)
	}
	if b := limit.Ban; b != (quota.Ban{}) {
		out.Ban = &budgetv1.Ban{Refusals: int32(b.Refusals), WithinMs: b.Within.Milliseconds(), ForMs: b.For.Milliseconds()}
	}
	if limit.Fair {
		out.Fair = &budgetv1.FairShare{Accounts: int32(limit.Level.Sharing), AheadUntil: timeOut(limit.Level.ShareAt)}
	}
	switch {
	case limit.Kind.HasRate():
		out.Used = int64(limit.Max - limit.Level.Remaining)
		out.RefillAmount = int64(limit.Rate.Amount)
		out.RefillEveryMs = int64(limit.Rate.Every / time.Millisecond)
	case limit.Kind == quota.KindQuota:
		out.Used = int64(limit.Level.Used + limit.Level.Unposted)
		out.Unposted = int64(limit.Level.Unposted)
		out.Posted = int64(limit.Posted)
		if unit, _, _, _, err := quota.ParsePeriodKey(limit.Period.Key); err == nil {
			out.Period = string(unit)
		}
		out.PeriodStart = timeOut(limit.Period.Start)
		out.Soft, out.Granted = limit.Soft, int64(limit.Granted)
		for _, alert := range limit.Alerts {
			out.Alerts = append(out.Alerts, &budgetv1.RaisedAlert{Percent: int32(alert.Percent), RaisedAt: timeOut(alert.RaisedAt)})
		}
	}
	return out
}

// GetReservation implements budgetv1connect.BudgetServiceHandler.
func (s *service) GetReservation(ctx context.Context, request *connect.Request[budgetv1.GetReservationRequest]) (*connect.Response[budgetv1.GetReservationResponse], error) {
	id := request.Msg.ReservationId
	if err := s.mayTouch(ctx, id); err != nil {
		return nil, s.asConnect(ctx, err, inNothing)
	}
	story, err := s.broker.Reservation(ctx, id)
	if err != nil {
		return nil, s.asConnect(ctx, err, inNothing)
	}
	answer := &budgetv1.GetReservationResponse{
		ReservationId: story.Reservation,
		State:         stateOut(story.State, false, false),
		Account:       story.Account,
		CreatedAt:     timeOut(story.Minted),
		ExpiresAt:     timeOut(story.ExpiresAt),
		Holds:         holdsOut(story.Holds),
		PriceVersion:  story.PriceVersion,
		Degraded:      story.Degraded,
		Parent:        parentOut(story.Parent),
		LedgerState:   budgetv1.LedgerState_LEDGER_STATE_NONE,

		ShadowRefusals: shadowsOut(story.Shadow),
	}
	switch {
	case story.Posted:
		answer.LedgerState = budgetv1.LedgerState_LEDGER_STATE_POSTED
	case story.Receipt != nil || story.State == reservation.StateExpired:
		answer.LedgerState = budgetv1.LedgerState_LEDGER_STATE_PENDING
	case story.State == reservation.StateUnknown:
		answer.LedgerState = budgetv1.LedgerState_LEDGER_STATE_UNSPECIFIED
	}
	if receipt := story.Receipt; receipt != nil {
		answer.State = stateOut(story.State, receipt.Late, receipt.Released)
		answer.Outcome = &budgetv1.ReservationOutcome{
			Charged:   amountsOut(receipt.Charged),
			GivenBack: amountsOut(receipt.GivenBack),
			Overrun:   amountsOut(receipt.Overrun),
			Late:      receipt.Late,
			ClosedAt:  timeOut(receipt.ClosedAt),
		}
	}
	return connect.NewResponse(answer), nil
}

// parentOut names an envelope, "" for none.
func parentOut(id reservation.ID) string {
	if id == (reservation.ID{}) {
		return ""
	}
	return id.String()
}
