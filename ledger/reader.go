package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// MaxPage is how many rows one call of a Reader returns at most.
const MaxPage = 10_000

// ClosingsQuery selects closings by the instant at which their reservation was
// made, From inclusive and To exclusive.
type ClosingsQuery struct {
	Account  string // "" for every account
	From, To time.Time
	Labels   map[string]string // all must be equal
	After    string            // Next of the page before; "" starts
	Limit    int               // 1 to MaxPage
}

// ClosingsPage is a part of the closings of a query, in no stated order. Their
// lines are as in Ledger.Closing. All pages together have each closing once
// that was there from the first page to the last. The work of one call is
// bounded, so a page may have less than Limit closings, or none, and a Next all
// the same.
type ClosingsPage struct {
	Closings []Closing
	Next     string // "" after the last
}

// ErrOldMark says that the ledger does not know any more what changed since
// the mark: it is more than MarkLife old, or of another database. Look at
// every row that matters, and go on from the empty mark.
var ErrOldMark = errors.New("the mark is too old")

// MarkLife is how long a mark is good for at least.
const MarkLife = 10 * time.Minute

// ChangesPage are usage rows that changed, each once and as it is now, in no
// stated order.
type ChangesPage struct {
	Usage []Usage
	Mark  string // gives what changed after; never skips a transaction that was under way, may repeat rows
	More  bool   // there is more already
}

// Grain is the span that one row of a report sums up, in UTC.
type Grain string

// The grains of a report.
const (
	GrainHour  Grain = "hour"
	GrainDay   Grain = "day"
	GrainMonth Grain = "month"
	GrainTotal Grain = "total" // the whole span of the query
)

// ReportQuery asks for what accounts used, of the reservations that were made
// from From to before To. The span is widened to whole hours (GrainHour,
// GrainTotal), days or months: see Span. Validate states the bounds.
type ReportQuery struct {
	Account  string // "" for every account
	From, To time.Time
	Grain    Grain
	GroupBy  []string          // labels, at most MaxGroupBy; "account" is the account, and no label
	Labels   map[string]string // only these: all must be equal
	Meters   []quota.Meter     // only these; empty: every meter
	Limit    int               // rows, 1 to MaxPage
	After    string            // Next of the page before of the same query, Limit apart; "" starts
}

// MaxGroupBy bounds the labels by which a report groups.
const MaxGroupBy = 8

// ReportRow is a line of a report. There is one for every group in which
// something was posted, even if it sums up to nothing.
type ReportRow struct {
	Start  time.Time // of the hour, day or month; of the whole span for GrainTotal
	Group  []string  // values of GroupBy, in order
	Absent []bool    // beside Group: the calls did not have the label
	Meter  quota.Meter
	Used   quota.Amount // what was charged, adjustments included
	Held   quota.Amount // what had been held for it
	Calls  int64        // reservations that were closed with a total of the meter
}

// Report is a page of rows in the order of start, group and meter; texts in
// byte order, a label that is absent before every value.
type Report struct {
	Rows []ReportRow
	Next string // "" after the last
}

// Reader answers questions about what was posted.
type Reader interface {
	// Closings pages through closings.
	Closings(ctx context.Context, q ClosingsQuery) (ClosingsPage, error)

	// Changes returns at most limit usage rows (1 to MaxPage) that were written
	// since the mark, by Append, Adjust or Reprice on any node. "" as mark
	// starts now: it returns no rows. An unreadable mark is ErrInvalid; one
	// that is too old is ErrOldMark.
	Changes(ctx context.Context, mark string, limit int) (ChangesPage, error)

	// Report sums up what was used. It sees every closing that an Append
	// answered before. It reads rollups, never entries. A sum that leaves 64
	// bits is an error that wraps quota.ErrOverflow.
	Report(ctx context.Context, q ReportQuery) (Report, error)
}

// Maintenance says what a Maintain did.
type Maintenance struct {
	Rolled   int      // deltas that became part of the rollups
	Made     int      // months made ahead
	Detached []string // partitions that were detached
	More     bool     // call again at once
}

// Maintainer keeps the tables in order. Any node may call it, at any time.
type Maintainer interface {
	// Maintain does a bounded piece of what is due at the instant: it makes
	// months ahead, folds deltas into rollups, and with a retention above 0
	// detaches the partitions of months that ended before now - retention, which
	// is 0 or at least MinRetention. What is detached stays a table of its own,
	// and is not part of the ledger any more: the sums of usage rows carry what
	// it held. An engine without partitions keeps every month.
	Maintain(ctx context.Context, now time.Time, retention time.Duration) (Maintenance, error)
}
