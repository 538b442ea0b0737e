package rpc

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
)

// operatorsOnly answers permission_denied unless the call came with an admin
// key. The gate has looked already: a slip in its list must not open the service
// to every caller.
type operatorsOnly struct{}

func (operatorsOnly) check(ctx context.Context) error {
	if who, ok := auth.FromContext(ctx); !ok || !who.IsAdmin() {
		return connect.NewError(connect.CodePermissionDenied, errors.New("this call needs an admin key"))
	}
	return nil
}

// WrapUnary checks a call.
func (o operatorsOnly) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if err := o.check(ctx); err != nil {
			return nil, err
		}
		return next(ctx, request)
	}
}

func (operatorsOnly) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler checks a stream.
func (o operatorsOnly) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := o.check(ctx); err != nil {
			return err
		}
		return next(ctx, conn)
	}
}
