package rpc

import (
	"context"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
)

// Bounds of the time that calls which read much may take. Those of Reserve and
// the like are the broker's own.
const (
	// readBound is below what the server gives an answer to be written in.
	readBound = 50 * time.Second
	longBound = time.Hour // Audit and CorrectPrices, which go through everything
)

// isLong says whether a call may take minutes.
func isLong(procedure string) bool {
	return procedure == budgetv1connect.AdminServiceAuditProcedure || procedure == budgetv1connect.AdminServiceCorrectPricesProcedure
}

// errTooLong is the cause of a context that ended by one of these bounds, and
// not by its caller's.
var errTooLong = errors.New("the call took longer than the broker lets it; ask for less at a time: one account, a shorter span or a smaller page")

// deadlines gives the calls of a lane other than that of callers their bound.
type deadlines struct{ traffic *traffic }

func (d deadlines) bounded(ctx context.Context, procedure string) (context.Context, context.CancelFunc) {
	lane, _ := d.traffic.lane(procedure)
	switch {
	case isLong(procedure):
		return context.WithTimeoutCause(ctx, longBound, errTooLong)
	case lane != &d.traffic.calls:
		return context.WithTimeoutCause(ctx, readBound, errTooLong)
	}
	return ctx, func() {}
}

// WrapUnary bounds a call.
func (d deadlines) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, cancel := d.bounded(ctx, request.Spec().Procedure)
		defer cancel()
		return next(ctx, request)
	}
}

func (d deadlines) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler bounds a stream.
func (d deadlines) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		ctx, cancel := d.bounded(ctx, conn.Spec().Procedure)
		defer cancel()
		return next(ctx, conn)
	}
}

// unhurried lets the server write the answers of long calls for as long as they
// may take.
func unhurried(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isLong(r.URL.Path) {
			// Where it is not supported the server's own bound holds.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(longBound + readBound))
		}
		next.ServeHTTP(w, r)
	})
}

// holdable lets a handler extend the time that the server gives a call: see holdFor.
func holdable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == budgetv1connect.BudgetServiceReserveProcedure {
			r = r.WithContext(context.WithValue(r.Context(), holdKey{}, http.NewResponseController(w)))
		}
		next.ServeHTTP(w, r)
	})
}

type holdKey struct{}

// holdFor lets a call take so long, and readBound to be answered.
func holdFor(ctx context.Context, wait time.Duration) {
	if c, ok := ctx.Value(holdKey{}).(*http.ResponseController); ok && wait > 0 {
		// Where it is not supported the server's own bound holds.
		_ = c.SetWriteDeadline(time.Now().Add(wait + readBound))
	}
}
