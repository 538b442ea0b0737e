package rpc

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/budgetd/budgetd/ledger"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Adjust implements budgetv1connect.AdminServiceHandler.
func (a *admin) Adjust(ctx context.Context, request *connect.Request[budgetv1.AdjustRequest]) (*connect.Response[budgetv1.AdjustResponse], error) {
	m := request.Msg
	if err := accountName("account", m.Account); err != nil {
		return nil, err
	}
	if err := required("idempotencyKey", m.IdempotencyKey, reservation.MaxKeyText); err != nil {
		return nil, err
	}
	if err := keyIn(m.IdempotencyKey); err != nil {
		return nil, err
	}
	a.follow(ctx)
	adjusted, err := a.broker.Adjust(ctx, reservation.AdjustRequest{
		Account: m.Account, Limit: m.Limit, Meter: quota.Meter(m.Meter), Scope: m.Scope, Period: m.Period,
		Amount: quota.Amount(m.Amount), Reason: m.Reason, By: a.by(ctx), Key: m.IdempotencyKey,
	})
	switch {
	case errors.Is(err, reservation.ErrNotFound), errors.Is(err, quota.ErrUnknownAccount):
		return nil, connect.NewError(connect.CodeNotFound, err)
	case err != nil:
		return nil, a.failed(ctx, err, "")
	}
	if !adjusted.Replayed {
		a.changed(ctx, "usage was adjusted", "account", m.Account, "limit", m.Limit, "amount", m.Amount, "adjustment", hex.EncodeToString(adjusted.ID[:]))
	}
	return connect.NewResponse(&budgetv1.AdjustResponse{
		AdjustmentId: hex.EncodeToString(adjusted.ID[:]), Period: adjusted.Usage.Period, Meter: string(adjusted.Usage.Meter),
		Used: int64(adjusted.Usage.Used), Replayed: adjusted.Replayed,
	}), nil
}

// ListAdjustments implements budgetv1connect.AdminServiceHandler.
func (a *admin) ListAdjustments(ctx context.Context, request *connect.Request[budgetv1.ListAdjustmentsRequest]) (*connect.Response[budgetv1.ListAdjustmentsResponse], error) {
	m := request.Msg
	if err := accountName("account", m.Account); err != nil {
		return nil, err
	}
	size, err := pageSize(m.PageSize, defaultPage, maxPage)
	if err != nil {
		return nil, err
	}
	before, err := adjustmentAt(m.PageToken)
	if err != nil {
		return nil, err
	}
	adjustments, err := a.broker.Ledger.Adjustments(ctx, m.Account, before, size)
	if err != nil {
		return nil, a.failed(ctx, err, "")
	}
	answer := &budgetv1.ListAdjustmentsResponse{}
	for i := range adjustments {
		x := &adjustments[i]
		answer.Adjustments = append(answer.Adjustments, &budgetv1.Adjustment{
			AdjustmentId: hex.EncodeToString(x.ID[:]), Account: x.Key.Account, Limit: quota.LimitName(x.Key.Limit), Scope: x.Key.Scope,
			Period: x.Key.Period, Meter: string(x.Key.Meter), Amount: int64(x.Amount),
			AdjustedAt: timeOut(x.At), AdjustedBy: x.By, Reason: x.Reason,
		})
	}
	if len(adjustments) == size {
		last := &adjustments[size-1]
		answer.NextPageToken = fmt.Sprintf("%d.%x", last.At.UnixMicro(), last.ID)
	}
	return connect.NewResponse(answer), nil
}

// adjustmentAt reads a page token: the instant and id of an adjustment.
func adjustmentAt(token string) (*ledger.Adjustment, error) {
	if token == "" {
		return nil, nil
	}
	micros, id, _ := strings.Cut(token, ".")
	at, err := strconv.ParseInt(micros, 10, 64)
	raw, hexErr := hex.DecodeString(id)
	x := &ledger.Adjustment{At: time.UnixMicro(at).UTC()}
	if err != nil || hexErr != nil || len(raw) != len(x.ID) || x.At.Before(ledger.MinInstant) || !x.At.Before(ledger.EndInstant) {
		return nil, badPageToken()
	}
	copy(x.ID[:], raw)
	return x, nil
}
