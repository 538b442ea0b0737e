package ledger

import (
	"errors"
	"fmt"
)

// ErrBusy says that too many closings wait to be appended already. Nothing was
// written. It is an [ErrUnavailable].
var ErrBusy = fmt.Errorf("too many closings wait: %w", ErrUnavailable)

// ErrClosed says that Close was called before. Nothing was written. It is an
// [ErrUnavailable].
var ErrClosed = fmt.Errorf("closed: %w", ErrUnavailable)

// ErrInvalid says that a closing or a query is outside the contract's bounds.
// Nothing was asked or written; the same call can never succeed.
var ErrInvalid = errors.New("invalid")
