package reservation

import (
	"time"

	"github.com/budgetd/budgetd/concurrency"
	"github.com/budgetd/budgetd/quota"
)

// RenewRequest extends a lease.
type RenewRequest struct {
	Account string
	ID      ID
	Lease   time.Duration

	// Used is what each hold used so far, in the order of the holds, 0 to
	// quota.MaxAmount; ignored for slots. nil: not told. It never falls: of what was
	// told for a hold the most counts. A hold is charged that at least when the lease
	// ends, whatever its rule is; a Refund says what was really used.
	Used []quota.Amount

	// Peek asks for the Standing of each hold. It names the reservation's holds, in
	// their order, with the parameters by which their counters are shown; empty:
	// nothing is asked. No counter changes.
	Peek []Hold
}

// RenewAnswer says where the reservation stands: State is StateHeld when the
// lease was extended, or was longer already.
type RenewAnswer struct {
	State     State
	Now       time.Time
	ExpiresAt time.Time
	Reclaimed int

	Standing []Standing // StateHeld, with Peek: one a hold
	Envelope bool       // with Peek: others are, or were, made in it
	Company  bool       // with Peek: others of its tree, below the first one, are held
}

// Standing is what a hold has, and what there is beyond it.
type Standing struct {
	Level   Level        // of its counter, without shares of a fair limit
	Granted quota.Amount // what the hold was granted
	Left    quota.Amount // what its children have left of it; Granted without any
	Used    quota.Amount // the most that was told

	// Funded: the reservation's parent pays the hold. Room is then what the parent
	// has left of its own, less what it told that it used, at least 0.
	Funded bool
	Room   quota.Amount
}

// Validate returns an error that wraps [ErrBadRequest] and names the field
// unless the request is within its bounds.
func (r *RenewRequest) Validate() error {
	if err := ValidateAccount(r.Account); err != nil {
		return err
	}
	if err := checkRange("lease", r.Lease, concurrency.MinLease, concurrency.MaxLease); err != nil {
		return err
	}
	if err := checkAmounts("used", r.Used); err != nil {
		return err
	}
	return ValidateHolds(r.Peek)
}

// Matches returns an error that wraps [ErrBadRequest] unless the request is for a
// reservation of so many holds.
func (r *RenewRequest) Matches(holds int) error {
	if r.Used != nil && len(r.Used) != holds {
		return badRequest("used", "%d amounts are given, the reservation has %d holds", len(r.Used), holds)
	}
	if len(r.Peek) != 0 && len(r.Peek) != holds {
		return badRequest("peek", "%d holds are given, the reservation has %d", len(r.Peek), holds)
	}
	return nil
}
