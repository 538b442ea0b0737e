package reservation

import (
	"errors"
	"fmt"
)

// Errors that a caller of [Broker] can act on. A refusal is not an error.
var (
	// ErrNotFound says that there is no such account or reservation, or that
	// it is none of the caller's.
	ErrNotFound = errors.New("not found")
	// ErrKeyReused says that the idempotency key was used with another body.
	ErrKeyReused = errors.New("idempotency key was used with another request")
	// ErrConflict says that the reservation was closed with another usage.
	ErrConflict = errors.New("reservation is closed with a different outcome")
	// ErrParentUnknown says that the parent of a Reserve is no reservation of the
	// account.
	ErrParentUnknown = errors.New("parent is not found")
	// ErrParentEnded says that the parent of a Reserve is closed, that its lease has
	// ended or its start is ahead, or that the engine never had it.
	ErrParentEnded = errors.New("parent is not held any more")
	// ErrParentFull says that the parent's tree takes no child more.
	ErrParentFull = fmt.Errorf("parent has too many below it: %d reservations may be open in one tree, %d generations deep", MaxTreeOpen, MaxTreeDepth)
	// ErrNotHeld says that a reservation has ended and can't be renewed.
	ErrNotHeld = errors.New("reservation is not held any more")
)

// InvalidError says which part of a request is out of bounds, and what the
// bound is. Nothing was changed.
type InvalidError struct {
	Field   string // path in the request, "amounts[\"tokens\"]"
	Problem string // what is wrong
	Bound   string // what would be accepted; may be empty
}

func (e *InvalidError) Error() string {
	if e.Bound == "" {
		return fmt.Sprintf("%s: %s", e.Field, e.Problem)
	}
	return fmt.Sprintf("%s: %s; accepted: %s", e.Field, e.Problem, e.Bound)
}

// DownError says that an engine did not answer and that a limit's rule is to
// refuse then. It wraps [ErrUnavailable].
type DownError struct {
	Limit string // the first limit whose rule is closed
	Err   error
}

func (e *DownError) Error() string {
	return fmt.Sprintf("limit %q can't be checked and its rule is when_down: closed: %v", e.Limit, e.Err)
}

func (e *DownError) Unwrap() error { return e.Err }
