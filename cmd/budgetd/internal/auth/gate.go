package auth

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
)

// Gate returns the same as [Authenticator.Interceptor] for a handler that
// should not read a request before it knows whose it is: the gate sees the
// headers only.
func (a *Authenticator) Gate() connect.RequestGateFunc {
	i := interceptor{a}
	return func(ctx context.Context, spec connect.Spec, peer connect.Peer, header http.Header) (context.Context, error) {
		return i.admit(ctx, spec.Procedure, header, peer.Addr)
	}
}
