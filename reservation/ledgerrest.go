package reservation

import (
	"errors"
	"sync"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

// Pauses of a Sweeper whose ledger is away. The longest is what an engine's
// closings wait at most once the ledger is back.
const (
	firstLedgerRest   = 500 * time.Millisecond
	longestLedgerRest = 4 * time.Second
)

// ledgerRest keeps a Sweeper from asking a ledger that is away for each of the
// closings that the engine hands out again and again.
type ledgerRest struct {
	mu    sync.Mutex
	pause time.Duration // 0: the ledger is there
	until time.Time
	probe bool // somebody finds out
}

type restState uint8

const (
	awake    restState = iota // the ledger is there as far as is known
	resting                   // do not ask
	restOver                  // ask once, and note what came of it
)

// allows says whether the ledger may be asked now.
func (r *ledgerRest) allows(now time.Time) restState {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.pause == 0:
		return awake
	case r.probe || now.Before(r.until):
		return resting
	}
	r.probe = true
	return restOver
}

// note takes the outcome of an Append. Only a ledger that is away counts.
func (r *ledgerRest) note(now time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !errors.Is(err, ledger.ErrUnavailable):
		if r.probe || err == nil {
			r.pause, r.probe = 0, false
		}
	case r.pause == 0 || r.probe:
		r.pause = min(max(2*r.pause, firstLedgerRest), longestLedgerRest)
		r.until, r.probe = now.Add(r.pause), false
	}
}
