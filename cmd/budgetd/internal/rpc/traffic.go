package rpc

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
)

// traffic bounds the calls under way, so that an overload is turned away at
// once instead of making everybody wait. What gives back goes before what
// takes: a part of the bound is kept for Refund and Renew.
type traffic struct {
	underWay  atomic.Int64
	most      int64 // for Refund and Renew
	mostOther int64
	metrics   *metrics
}

func newTraffic(most int, m *metrics) *traffic {
	t := &traffic{most: int64(most), mostOther: int64(most - most/8), metrics: m}
	m.track(func() float64 { return float64(t.underWay.Load()) })
	return t
}

func (t *traffic) bound(procedure string) int64 {
	if procedure == budgetv1connect.BudgetServiceRefundProcedure || procedure == budgetv1connect.BudgetServiceRenewProcedure {
		return t.most
	}
	return t.mostOther
}

func (t *traffic) shed(procedure string) error {
	t.metrics.shed.WithLabelValues(methodOf(procedure)).Inc()
	return connect.NewError(connect.CodeUnavailable, errors.New("the broker is overloaded: too many calls are under way; nothing was decided, try again with a back-off"))
}

// gate turns a call away before its body is read when the bound is reached
// already.
func (t *traffic) gate(ctx context.Context, spec connect.Spec, _ connect.Peer, _ http.Header) (context.Context, error) {
	if t.underWay.Load() >= t.bound(spec.Procedure) {
		return ctx, t.shed(spec.Procedure)
	}
	return ctx, nil
}

// WrapUnary counts a call from when it is decoded to when it is answered.
func (t *traffic) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		defer t.underWay.Add(-1)
		if t.underWay.Add(1) > t.bound(request.Spec().Procedure) {
			return nil, t.shed(request.Spec().Procedure)
		}
		return next(ctx, request)
	}
}

func (t *traffic) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler leaves streams alone: the service has none.
func (t *traffic) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
