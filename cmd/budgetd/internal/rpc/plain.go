package rpc

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"connectrpc.com/connect"
)

// Plain returns a handler of HTTP without a protocol above it, which is let in,
// bounded, counted and timed as the BudgetService is. It reads no body. name is
// the method's in metrics; credentials returns the header in which the
// credential is looked for. serve writes the answer, or nothing and returns a
// *connect.Error, which is written as Connect does.
func (g *Gateway) Plain(name string, credentials func(http.Header) http.Header, serve func(http.ResponseWriter, *http.Request) error) http.Handler {
	seen, spec := observer{g.metrics}, connect.Spec{Procedure: "/" + name, StreamType: connect.StreamTypeUnary}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		w.Header().Set("Cache-Control", "no-store")
		err := g.let(w, r, spec, credentials(r.Header), serve)
		if err != nil {
			g.errorWriter.Write(w, r, err)
		}
		seen.saw(spec.Procedure, start, err)
	})
}

// let serves a call unless its credential is wrong or too many are under way.
func (g *Gateway) let(w http.ResponseWriter, r *http.Request, spec connect.Spec, header http.Header, serve func(http.ResponseWriter, *http.Request) error) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			g.metrics.panics.Inc()
			g.calls.log.Error("a handler panicked", "procedure", spec.Procedure, "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
			err = connect.NewError(connect.CodeInternal, errInternal)
		}
	}()
	lane, most := g.traffic.lane(spec.Procedure)
	defer lane.underWay.Add(-1)
	if lane.underWay.Add(1) > most {
		return g.traffic.shed(spec.Procedure)
	}
	ctx, err := g.letIn(r.Context(), spec, connect.Peer{Addr: r.RemoteAddr}, header)
	if err != nil {
		return err
	}
	return serve(w, r.WithContext(ctx))
}
