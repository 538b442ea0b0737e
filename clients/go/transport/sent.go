package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// sending is how far a request came, as net/http tells it.
type sending struct {
	begun   atomic.Bool // a connection was asked for
	written atomic.Bool // the request was written whole
	again   bool        // net/http may send it again after it was sent
}

// follow returns the context for sending a request, made from ctx.
func (s *sending) follow(ctx context.Context, request *http.Request) context.Context {
	// net/http sends a POST again by itself on another connection if nothing of it
	// went out on the first, or if it has one of these headers.
	s.again = request.Header["Idempotency-Key"] != nil || request.Header["X-Idempotency-Key"] != nil
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) {
			s.begun.Store(true)
			if !s.again {
				s.written.Store(false) // of the try before nothing went out
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				s.written.Store(true)
			}
		},
	})
}

// whole says whether any try went out whole, of a call that ended with an error.
// net/http calls a request written when it is in the buffer of the connection: an
// error of the connection's Write says that it did not go out.
func (s *sending) whole(err error) bool {
	var failed *net.OpError
	if errors.As(err, &failed) && failed.Op == "write" && !s.again {
		return false
	}
	return s.written.Load()
}
