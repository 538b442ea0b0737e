package main

import (
	"errors"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
)

// Exit codes, after sysexits.h where it has one.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnavailable = 69 // EX_UNAVAILABLE: the broker does not answer
	exitTryLater    = 75 // EX_TEMPFAIL: refused now
	exitRefused     = 76 // refused, and waiting does not help
	exitNotAllowed  = 77 // EX_NOPERM
)

// exit is an end with a code of its own; without err nothing more is printed.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

func exitCode(err error) int {
	var own *exit
	var u *usage
	var refused *budget.RefusedError
	switch {
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &u):
		return exitUsage
	case errors.As(err, &refused):
		if refused.Retryable() {
			return exitTryLater
		}
		return exitRefused
	}
	var rpc *connect.Error
	if errors.As(err, &rpc) {
		switch rpc.Code() {
		case connect.CodeUnavailable, connect.CodeDeadlineExceeded:
			return exitUnavailable
		case connect.CodeUnauthenticated, connect.CodePermissionDenied:
			return exitNotAllowed
		}
		return exitFailed
	}
	return app.ExitCode(err)
}
