package middleware

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// middleware is what New makes.
type middleware struct {
	budget  *budget.Client
	options options
	proxies proxies
}

// New returns a function that wraps handlers: each call to one is reserved
// before it begins and refunded when the handler has returned. It fails when an
// option is out of bounds.
func New(client *budget.Client, opts ...Option) (func(http.Handler) http.Handler, error) {
	if client == nil {
		return nil, errors.New("client is missing: make one with budget.New")
	}
	m := &middleware{budget: client, options: defaults()}
	for _, option := range opts {
		option(&m.options)
	}
	if err := m.options.check(); err != nil {
		return nil, err
	}
	var err error
	if m.proxies, err = parseProxies(m.options.trusted); err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}, nil
}

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	running, err := m.budget.Begin(r.Context(), m.request(r))
	if err != nil {
		m.refuse(w, r, err)
		return
	}
	call := &guarded{running: running}
	// Also when the handler panics, which goes on to net/http. The client may have
	// hung up by then, or the connection may be the handler's own: neither keeps
	// the Refund from its way.
	defer m.end(r, call)
	maps.Copy(w.Header(), running.LimitHeaders)
	// The ResponseWriter is passed on as it is, so whatever it can do the handler
	// can: Flush, Hijack, ReadFrom.
	next.ServeHTTP(w, r.WithContext(context.WithValue(running.Context(), contextKey{}, call)))
}

// end refunds a call, and waits for it as long as the answer may wait.
func (m *middleware) end(r *http.Request, call *guarded) {
	ctx := context.WithoutCancel(r.Context())
	ended := make(chan struct{})
	call.running.EndInBackground(ctx, call.end(), func(_ *budgetv1.RefundResponse, err error) {
		defer close(ended)
		if connect.CodeOf(err) == connect.CodeInvalidArgument {
			// The handler's usage is out of bounds: nobody knows then what was used.
			m.options.logger.ErrorContext(ctx, "the usage that a handler set is refused; the call counts as it was held", "error", err)
			_, err = call.running.End(ctx, budget.Usage{})
		}
		var failed *budget.RefundError
		if err != nil && !(errors.As(err, &failed) && failed.Kept) {
			m.options.logger.ErrorContext(ctx, "the refund of a call was not delivered", "error", err)
		}
	})
	if m.options.settleWait == 0 {
		return
	}
	enough := time.NewTimer(m.options.settleWait)
	defer enough.Stop()
	select {
	case <-ended:
	case <-enough.C:
	}
}

// request is what a call asks for.
func (m *middleware) request(r *http.Request) budget.Request {
	request := m.options.request(r)
	labels := make(map[string]string, len(request.Labels)+2)
	if r.Pattern != "" {
		labels["route"] = r.Pattern
	}
	maps.Copy(labels, request.Labels)
	labels[m.options.clientLabel] = m.client(r)
	request.Labels = labels
	return request
}
