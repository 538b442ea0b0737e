package auth

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
)

// Interceptor returns the Connect interceptor that lets calls in: handlers find
// the caller with [FromContext]. It answers
//
//   - unauthenticated when there is no key, or one that does not work;
//   - permission_denied when the procedure needs an admin key and the key is
//     none;
//   - unavailable when the store of keys does not answer, so that a caller with
//     a good key tries again instead of giving up.
//
// Clients made with it are left alone.
func (a *Authenticator) Interceptor() connect.Interceptor { return interceptor{a} }

type interceptor struct{ *Authenticator }

func (i interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if request.Spec().IsClient {
			return next(ctx, request)
		}
		ctx, err := i.admit(ctx, request.Spec().Procedure, request.Header(), request.Peer().Addr)
		if err != nil {
			return nil, err
		}
		return next(ctx, request)
	}
}

func (i interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (i interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		ctx, err := i.admit(ctx, conn.Spec().Procedure, conn.RequestHeader(), conn.Peer().Addr)
		if err != nil {
			return err
		}
		return next(ctx, conn)
	}
}

// admit returns the context for the handler, or the Connect error to answer.
func (i interceptor) admit(ctx context.Context, procedure string, header http.Header, peer string) (context.Context, error) {
	if covers(i.config.Exempt, procedure) {
		i.calls.WithLabelValues("exempt").Inc()
		return ctx, nil
	}
	principal, err := i.Authenticate(ctx, header, peer)
	if err != nil {
		result, answer := refusal(err)
		i.calls.WithLabelValues(result).Inc()
		return ctx, answer
	}
	if covers(i.config.AdminOnly, procedure) && !principal.IsAdmin() {
		i.calls.WithLabelValues("forbidden").Inc()
		return ctx, connect.NewError(connect.CodePermissionDenied, errors.New("this call needs an admin key; \"budgetd key create NAME --admin\" makes one"))
	}
	i.calls.WithLabelValues("ok").Inc()
	return WithPrincipal(ctx, principal), nil
}

// refusal returns the value of the metric's label, and what the caller is
// told, for an error of Authenticate. What was wrong inside is not told.
func refusal(err error) (result string, answer *connect.Error) {
	code := connect.CodeUnauthenticated
	var text string
	switch {
	case errors.Is(err, context.Canceled):
		return "cancelled", connect.NewError(connect.CodeCanceled, context.Canceled)
	case errors.Is(err, context.DeadlineExceeded):
		return "cancelled", connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
	case errors.Is(err, ErrNoKey):
		result, text = "missing", "no API key; send the header \"Authorization: Bearer bk_...\" (\"budgetd key create\" makes a key)"
	case errors.Is(err, ErrKeyRevoked):
		result, text = "revoked", "the API key was revoked; use another"
	case errors.Is(err, ErrKeyExpired):
		result, text = "expired", "the API key has expired; use another"
	case errors.Is(err, ErrInvalidKey):
		result, text = "invalid", "the API key is not valid; check that it was copied whole, or use another"
	default:
		return "unavailable", connect.NewError(connect.CodeUnavailable, errors.New("the API key cannot be checked at the moment; try again"))
	}
	answer = connect.NewError(code, errors.New(text))
	// RFC 9110 section 11.6.1 asks for it in a 401.
	answer.Meta().Set("WWW-Authenticate", "Bearer")
	return result, answer
}
