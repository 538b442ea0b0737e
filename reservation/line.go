package reservation

import (
	"time"

	"github.com/budgetd/budgetd/quota"
)

// Bounds of a line of callers that wait for slots.
const (
	// MaxLine is how many places a counter's line has. Who comes when they are all
	// taken is refused at once.
	MaxLine = 1000
	// MaxPlaceKeep is the longest that a place stands without another ask.
	MaxPlaceKeep = time.Minute
)

// Line lets a caller keep a place in line where nothing but slots stands in its
// way: at each counter of slots that refuses it. Slots are given in the order of the
// places: a caller fits only where more slots are free than callers stand before it,
// and one who does not wait stands behind all of them. Who must leave less of the
// limit to others stands before who must leave more: see Hold.LineClass.
type Line struct {
	// Waiter is who waits. It is the same in every repetition of the ask, whatever
	// id that is made with: the place is that of the first.
	Waiter ID
	// Keep is how long the place stands unless the waiter asks again: 1 ms to
	// MaxPlaceKeep. A waiter that crashed is passed over after it.
	Keep time.Duration
}

func (l *Line) validate(r *ReserveRequest) error {
	if r.Settle != nil {
		return badRequest("line", "a charge takes no slots and can't wait for them")
	}
	if r.Output != nil {
		return badRequest("line", "what is chosen can't wait for slots; leave it out, or the output")
	}
	if r.Parent != (ID{}) {
		return badRequest("line", "what is made in an envelope can't wait for slots")
	}
	return checkRange("line.keep", l.Keep, time.Millisecond, MaxPlaceKeep)
}

// LeaveRequest gives up the places of a waiter.
type LeaveRequest struct {
	Account string
	Holds   []Hold // as it asked for
	Waiter  ID
}

// Validate checks the bounds; the error wraps [ErrBadRequest].
func (r *LeaveRequest) Validate() error {
	if err := ValidateAccount(r.Account); err != nil {
		return err
	}
	return ValidateHolds(r.Holds)
}

// Waits says whether the hold is one of a slot, for which callers can wait.
func (h *Hold) Waits() bool { return h.Kind == quota.KindSlots && h.Amount > 0 && !h.Shadow }

// MaxLineClass is the largest class of a line.
const MaxLineClass quota.Amount = 1 << 20

// LineClass is the part of a line that the hold's caller stands in: the smaller
// comes first, and arrival decides within it. It is what the hold must leave of the
// limit (Keep), so a higher priority is not held up by who may not take what is kept
// for it.
func (h *Hold) LineClass() quota.Amount { return min(h.Keep, MaxLineClass) }
