package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// ErrUnavailable says that the ledger could not be asked, or did not say in
// time whether it kept a closing. Appending the same closing again is safe.
var ErrUnavailable = errors.New("ledger unavailable")

// ErrNotFound says that the ledger holds no closing of that reservation.
var ErrNotFound = errors.New("closing not found")

// Rank orders the closings of one reservation: the higher rank stays.
type Rank uint8

// The ranks. Their numbers are stored.
const (
	RankExpired  Rank = 1 // the lease ended without a Refund
	RankRefunded Rank = 2 // the caller's Refund, late ones included
)

// Bounds of one closing. Append refuses a closing outside them.
const (
	MaxLines        = 256      // lines of a closing
	MaxOutcomeBytes = 16 << 10 // bytes of an outcome
	MaxTextBytes    = 1024     // bytes of a limit id, scope, period, label or price version
)

// UsageKey names one usage row. Limit and Scope are empty in the rows of an
// account's totals, which are kept per meter and calendar month.
type UsageKey struct {
	Account string
	Limit   string // quota.Limit.ID, or ""
	Scope   string // quota.Limit.Scope, or ""
	Period  string // quota.Period.Key
	Meter   quota.Meter
}

// Usage is the state of one usage row. A row that does not exist yet has Used
// and Version 0.
type Usage struct {
	UsageKey
	Used    quota.Amount // sum of the row's entries, in the meter's unit
	Version int64        // grows by 1 at every transaction that changes the row
}

// Line is what one closing charges to one usage row: an absolute amount, from
// which the ledger posts the difference to what the reservation's closing
// charged before.
type Line struct {
	Limit  string
	Scope  string
	Period string
	Meter  quota.Meter
	Amount quota.Amount // 0 to quota.MaxAmount

	// Held is what the reservation held of the meter, 0 to quota.MaxAmount. It
	// is for reports, which count it once a reservation, and must be 0 but in
	// lines of totals (Limit ""). Ledger.Closing does not return it.
	Held quota.Amount
}

// Closing ends one reservation.
type Closing struct {
	Account      string
	Reservation  [16]byte  // reservation.ID
	Minted       time.Time // when the reservation was made, the same in all its closings; its UTC month is the partition
	ClosedAt     time.Time // when it was closed, by the engine's clock
	Rank         Rank
	Body         [16]byte // hash of the closing body: two Refunds with the same hash are the same Refund
	Outcome      []byte   // opaque to the ledger; returned with the verdict
	Late         bool     // the Refund came after the lease had ended
	Degraded     bool     // the reservation was granted while the engine did not answer
	PriceVersion string
	Labels       map[string]string // the same in all closings of a reservation; reports go by them
	Lines        []Line            // at most one per usage row
	// Spooled says, in what Ledger.Closing returns, that the closing is on this
	// node's disk and not in the ledger yet. Append does not look at it.
	Spooled bool
}

// Verdict is what the ledger holds for a reservation once a closing was
// appended: that closing, or the one that had won before.
type Verdict struct {
	Posted   bool // the appended closing was written by this call
	Rank     Rank
	Body     [16]byte
	Outcome  []byte
	Late     bool
	ClosedAt time.Time
	// Spooled says that the closing is on this node's disk and not in the ledger
	// yet: it will be, and wins unless another closing of the reservation was
	// there first. Usage is empty then.
	Spooled bool
	Usage   []Usage // the rows that the reservation was ever charged on, which are those of the winner's lines, as of this transaction; in the order of UsageKey.Compare
}

// Appender keeps closings.
//
// Append writes all closings in one transaction and returns one verdict for
// each, in order. When it returns without an error, every closing that is said
// to be kept is durable. The same closing appended again, concurrently or
// after a crash, changes nothing and returns the winner. Two closings of one
// reservation in one call are treated as if appended in order. Usage rows are
// updated in key order, so that concurrent Appends can't deadlock.
// An error that wraps ErrUnavailable leaves the outcome unknown, except ErrBusy
// and ErrClosed; any other error means that nothing was written and that the
// same call can't succeed: it wraps ErrInvalid where a closing is out of the
// bounds that Closing.Validate states, ErrTooOld where its month is not kept any
// more, and is the store's own where a usage row would leave 64 bits or the books
// are damaged. At most MaxAppend closings.
type Appender interface {
	Append(ctx context.Context, closings []Closing) ([]Verdict, error)
}

// Ledger is the contract of an engine.
type Ledger interface {
	Appender

	// Usage returns one row for each key, in order, read from the primary:
	// what it returns is not older than the call.
	Usage(ctx context.Context, keys []UsageKey) ([]Usage, error)

	// AccountUsage returns the rows of one account in one period, sorted by
	// limit, scope and meter (then period); an empty period means all periods.
	// At most limit rows (1 to MaxAccountUsage).
	AccountUsage(ctx context.Context, account, period string, limit int) ([]Usage, error)

	// Closing returns the closing of a reservation, or ErrNotFound, also where
	// its month is not kept any more. Its lines
	// are what the reservation is charged now, in the order of
	// UsageKey.Compare: a row that an earlier closing charged and the winner
	// did not is a line of 0. Times are in UTC, to the microsecond.
	Closing(ctx context.Context, account string, reservation [16]byte, minted time.Time) (Closing, error)

	// CheckSums compares, for one account, the sum of entries of every usage
	// row with the row, and returns the rows that differ (none when the books
	// are right) with the sum of entries.
	CheckSums(ctx context.Context, account string) ([]Mismatch, error)

	Adjuster
	Reader
	Maintainer

	// Ping answers nil when the ledger can take an Append now.
	Ping(ctx context.Context) error

	// Close releases the engine's resources. Appends under way finish first.
	Close() error
}

// Mismatch is a usage row whose value is not the sum of its entries.
type Mismatch struct {
	Usage
	Entries quota.Amount // the sum of the entries, those of months that have left the ledger included
}
