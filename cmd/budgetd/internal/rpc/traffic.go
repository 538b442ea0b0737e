package rpc

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
)

// Bounds of what is not a caller's own traffic: each call may read much of the
// ledger.
const (
	maxReports = 32
	maxAdmin   = 64
)

// traffic bounds the calls under way, so that an overload is turned away at
// once instead of making everybody wait. What gives back goes before what
// takes: a part of the bound is kept for Refund and Renew. Reports and operators
// have lanes of their own: reports must not take the place of calls, and an
// operator must get in when callers have taken all of theirs.
type traffic struct {
	calls     lane
	reports   lane
	admin     lane
	mostOther int64 // calls but for Refund and Renew
	metrics   *metrics
}

// lane counts the calls under way of one kind.
type lane struct {
	underWay atomic.Int64
	most     int64
}

func newTraffic(most int, m *metrics) *traffic {
	t := &traffic{mostOther: int64(most - most/8), metrics: m}
	t.calls.most, t.reports.most, t.admin.most = int64(most), maxReports, maxAdmin
	m.track(func() float64 {
		return float64(t.calls.underWay.Load() + t.reports.underWay.Load() + t.admin.underWay.Load())
	})
	return t
}

// lane returns the lane of a procedure, and how many calls it may have under
// way for this one to come in.
func (t *traffic) lane(procedure string) (*lane, int64) {
	switch {
	case procedure == budgetv1connect.BudgetServiceRefundProcedure || procedure == budgetv1connect.BudgetServiceRenewProcedure:
		return &t.calls, t.calls.most
	case procedure == budgetv1connect.BudgetServiceListUsageProcedure:
		return &t.reports, t.reports.most
	case strings.HasPrefix(procedure, AdminOnly):
		return &t.admin, t.admin.most
	}
	return &t.calls, t.mostOther
}

func (t *traffic) shed(procedure string) error {
	t.metrics.shed.WithLabelValues(methodOf(procedure)).Inc()
	return connect.NewError(connect.CodeUnavailable, errors.New("the broker is overloaded: too many calls are under way; nothing was decided, try again with a back-off"))
}

// gate turns a call away before its body is read when the bound is reached
// already.
func (t *traffic) gate(ctx context.Context, spec connect.Spec, _ connect.Peer, _ http.Header) (context.Context, error) {
	if lane, most := t.lane(spec.Procedure); lane.underWay.Load() >= most {
		return ctx, t.shed(spec.Procedure)
	}
	return ctx, nil
}

// WrapUnary counts a call from when it is decoded to when it is answered.
func (t *traffic) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		lane, most := t.lane(request.Spec().Procedure)
		defer lane.underWay.Add(-1)
		if lane.underWay.Add(1) > most {
			return nil, t.shed(request.Spec().Procedure)
		}
		return next(ctx, request)
	}
}

func (t *traffic) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler counts a stream from its begin to its end.
func (t *traffic) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		lane, most := t.lane(conn.Spec().Procedure)
		defer lane.underWay.Add(-1)
		if lane.underWay.Add(1) > most {
			return t.shed(conn.Spec().Procedure)
		}
		return next(ctx, conn)
	}
}
