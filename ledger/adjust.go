package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// ErrTooOld says that a closing belongs to a month that the ledger does not
// keep any more. Nothing was written; the same call can never succeed.
var ErrTooOld = errors.New("older than what the ledger keeps")

// ErrReused says that an adjustment's id stands for another adjustment.
// Nothing was written.
var ErrReused = errors.New("the id was used for another adjustment")

// Bounds of an adjustment.
const (
	MaxReasonBytes = 1024
	MaxByBytes     = 128
	MaxReprice     = 1000 // repricings in one call
)

// Adjustment changes one usage row by hand, outside of any reservation: a
// goodwill credit, a bill that differs. It posts one entry.
type Adjustment struct {
	ID     [16]byte // made by the caller; the same one again changes nothing
	Key    UsageKey
	Amount quota.Amount // signed, not 0, within -quota.MaxAmount and quota.MaxAmount
	At     time.Time    // its UTC month is the partition of its entry, its hour that of the reports
	By     string       // who, 1 to MaxByBytes bytes
	Reason string       // why, 1 to MaxReasonBytes bytes
}

// Repricing replaces what the meter "cost" of one closing was charged, on every
// usage row of that meter that it was charged on.
type Repricing struct {
	Account     string
	Reservation [16]byte
	Minted      time.Time
	Body        [16]byte // of the closing that was looked at: if another has won meanwhile, nothing is done
	Rank        Rank
	// Lines are the new absolute amounts of the usage rows to be changed; rows
	// that are not named stay as they are.
	Lines []Line
}

// Correction says on whose behalf closings are repriced.
type Correction struct {
	ID     [16]byte // of the whole correction
	At     time.Time
	By     string
	Reason string
}

// Adjuster posts what no reservation's end posts. Everything is an entry more;
// nothing is ever edited.
type Adjuster interface {
	// Adjust posts an adjustment and returns its row afterwards. Posted is
	// false when this very adjustment had been posted before. The errors are
	// those of Append, and ErrReused.
	Adjust(ctx context.Context, a Adjustment) (usage Usage, posted bool, err error)

	// Adjustments returns at most limit (1 to MaxPage) adjustments of an account,
	// the newest first, of those before the instant and id of the one given;
	// nil starts at the newest.
	Adjustments(ctx context.Context, account string, before *Adjustment, limit int) ([]Adjustment, error)

	// Reprice posts, in one transaction, the difference between the new amounts
	// and what each closing is charged now, as further entries of its
	// reservation. Doing it again changes nothing. It returns the usage rows
	// that changed, and how many closings did.
	Reprice(ctx context.Context, c Correction, repricings []Repricing) (usage []Usage, repriced int, err error)
}
