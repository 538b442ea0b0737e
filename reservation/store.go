package reservation

import (
	"context"
	"errors"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// ErrUnavailable says that the engine did not answer in time or could not
// serve (away, frozen, loading, read-only). The outcome is unknown: repeating
// the same call is safe.
var ErrUnavailable = errors.New("reservation store unavailable")

// ErrNewerLayout says that the state was written in a layout that this version
// does not know. Nothing was changed. Upgrade this node.
var ErrNewerLayout = errors.New("state has a newer layout than this version knows")

// Fixed spans of the protocol.
const (
	// MintSkew is how far an id's mint instant may be from the engine's clock
	// at Reserve; beyond it the engine answers [Stale].
	MintSkew = 5 * time.Second
	// OutboxDelay is how long after a Refund a closing waits for its Confirm
	// before Sweep hands it out; the closing of an expiry is handed out at once.
	OutboxDelay = 2 * time.Second
	// OutboxRetry is how long after Sweep handed out a closing it is handed
	// out again unless confirmed.
	OutboxRetry = 5 * time.Second
	// ReclaimBatch is how many due reservations of its account a call reclaims
	// before it does its own work.
	ReclaimBatch = 64
)

// Store keeps reservations and the counters that they hold. Every method is
// one atomic step per account, safe for concurrent use by many brokers, and
// costs a bounded amount of work. Times come from the engine's clock (Redis
// TIME in production), to the microsecond.
//
// Before its own work each method on an account ends up to [ReclaimBatch] of
// the account's reservations whose lease has ended (expiry <= now), in order
// of expiry: the slot is free, a bucket gets the hold back (ExpiryGiveBack) or
// keeps it (ExpiryCharge), and a quota's hold moves from held to unposted in
// full until the ledger confirmed a closing.
//
// A slot whose lease has ended is free at once, however many wait to be
// reclaimed.
//
// Requests outside their bounds (see the Validate methods) are refused with an
// error that wraps [ErrBadRequest], and change nothing. A record is remembered
// at least until its id is too old to be reserved again (minted + [MintSkew]).
type Store interface {
	// Reserve decides, in this order:
	//  1. key known, same body: Replayed, with the record's present state;
	//     another body: KeyReused. The key outlives the lease by Retention.
	//  2. id known, in whatever state: Closed (a script that runs late must
	//     not hold again).
	//  3. id minted more than MintSkew from now, or a quota's period that does
	//     not contain now: Stale. The broker mints anew at Answer.Now.
	//     Then, with a Parent that is not held any more, ParentEnded; with one
	//     whose tree is too large or too deep, ParentFull.
	//  4. a quota with an amount above 0 whose counter is missing or of
	//     another incarnation: Unseeded with a ticket for each such counter.
	//     A ticket that stands is given again.
	//  5. any hold that does not fit, or whose counter is banned: Refused, and
	//     nothing is written unless a hold counts refusals: see refusals.go. The
	//     strictest refusal is reported: one that no waiting helps first, then
	//     the latest RetryAt, then the first in the plan's order. With Output a
	//     hold does not fit where it does not for Least tokens. A Shadow hold
	//     never refuses.
	//  6. else takes every hold, writes the record, and answers Granted. With
	//     MaxWait the holds with a rate may be taken ahead: see ReserveRequest. With
	//     Output the largest number of tokens is granted at which all fit but
	//     Shadow holds, and those that do not fit then are missed: they take 0.
	//     With Output or a Shadow hold the record's Token is what
	//     Decided.AppendTo makes of the one given.
	//
	// With Line a caller that only slots refuse keeps a place in line at each counter
	// that does: see Line. Its other places it loses, and all of them where anything
	// else refuses it too.
	//
	// With Settle the reservation is made and settled in the same step (a
	// Charge): no lease, no slots; the record waits for the ledger at once.
	// With DryRun nothing is written, not even a ticket; the answer is what it
	// would have been.
	Reserve(ctx context.Context, r ReserveRequest) (ReserveAnswer, error)

	// Refund closes a reservation. Held or expired: each bucket is corrected
	// by the difference to what it was charged so far (refill first, then the
	// return, never above the capacity; an overrun may take it below zero; rate
	// and capacity are those of the last Reserve that met the bucket), the
	// slot is freed, the quota's hold becomes unposted actual, and the outcome
	// waits for the ledger. Settled already: nothing changes and the recorded
	// outcome is returned. See RefundVerdict.
	Refund(ctx context.Context, r RefundRequest) (RefundAnswer, error)

	// Renew moves the lease's end to now+Lease if that is later. It never
	// revives an expired or settled reservation. What a held one used so far is
	// remembered: when its lease ends, it is charged that at least. With Peek it
	// says where each hold stands: see Standing.
	Renew(ctx context.Context, r RenewRequest) (RenewAnswer, error)

	// Confirm tells the engine what the ledger holds: newer usage values are
	// taken over (by version; a counter that is not seeded stays unseeded),
	// and the record adopts the winner, unless its rank is higher, or equal
	// and confirmed. Adopting drops its held and unposted shares, corrects the
	// bucket to the winner's amounts, frees the slot and ends the wait for the
	// ledger. The record can then be forgotten, but not before lease end plus
	// retention.
	Confirm(ctx context.Context, r ConfirmRequest) (ConfirmVerdict, error)

	// Seed stores a quota's ledger value, read after the ticket was given. It
	// reports false, and changes nothing, when the ticket no longer stands or
	// the version is older than the known one.
	Seed(ctx context.Context, s SeedRequest) (bool, error)

	// Sweep visits accounts whose earliest due instant has passed: it expires
	// leases and returns up to max closings that wait for the ledger. A
	// closing that was returned is due again after OutboxRetry. Any node may
	// sweep, at any time, any number of times.
	Sweep(ctx context.Context, max int) (SweepAnswer, error)

	// Lookup returns the record of a reservation without changing it, except
	// that a held record whose lease has ended is shown as expired. State is
	// StateUnknown when there is none.
	Lookup(ctx context.Context, account string, id ID) (Record, error)

	// Levels shows the counters of holds, in order, without changing anything.
	Levels(ctx context.Context, account string, holds []Hold) ([]Level, time.Time, error)

	// Restore brings back an open reservation that the engine lost: a Reserve
	// whose decision was made already. See RestoreRequest.
	Restore(ctx context.Context, r RestoreRequest) (RestoreVerdict, error)

	// Open pages through the account's held reservations whose lease has not
	// ended, in the order of its end; at most most (1 to MaxOpenPage) a page. It
	// changes nothing. A reservation that is open during the whole walk is shown;
	// one that is renewed meanwhile may be shown twice.
	Open(ctx context.Context, account, cursor string, most int) (OpenPage, error)

	// Push takes over ledger values of quota counters, at most MaxPush, that are
	// not older, by version, than what the engine has: at the same version the
	// ledger's value is the right one, whatever became of the engine's. A counter
	// that is missing or of another incarnation stays as it is: a push never
	// seeds.
	Push(ctx context.Context, account string, usage []CounterUsage) error

	// GiveBack gives amounts of no reservation back to buckets: the refill first,
	// then the return, never above the capacity, which is that of the last Reserve
	// that met the bucket. A bucket that is full takes nothing. It is done once or
	// not at all, and an answer that is lost does not tell which: do not repeat it.
	GiveBack(ctx context.Context, account string, holds []Hold) (GiveBackAnswer, error)

	// Audit compares the quota counters named, and those in which the
	// account's records take part, with the records, in one atomic step. See
	// AuditRequest.
	Audit(ctx context.Context, r AuditRequest) (AuditAnswer, error)

	// Leave gives up a waiter's places in line. To leave without a place is no
	// error.
	Leave(ctx context.Context, r LeaveRequest) error

	// Watch calls wake, from any goroutine, when a slot of the counter was freed, or
	// a place in its line given up, while callers stand in line: by whatever broker.
	// It is a hint and may be missed: a waiter asks again by itself too. What ends
	// by time (a lease, a place) nobody tells. wake must not block, nor call the
	// engine. stop ends it.
	Watch(account string, slots Counter, wake func()) (stop func())

	// Ping answers nil when the engine can serve now.
	Ping(ctx context.Context) error

	// Close releases the engine's resources.
	Close() error
}

// ReserveRequest asks an engine to commit a plan of holds.
type ReserveRequest struct {
	Account   string
	ID        ID
	Holds     []Hold        // at most MaxHolds, at most one per counter
	Lease     time.Duration // 1 ms to 24 h; ignored with Settle
	Retention time.Duration // how long after the lease's end the record is remembered; to 24 h
	Key       string        // idempotency key, "" for none; to MaxKeyBytes
	Body      Hash          // of the whole ask
	Token     []byte        // opaque; returned by a replay, with closings and by Lookup
	Settle    *Settlement   // non-nil: a Charge
	Output    *Output       // nil: the holds as they are
	Line      *Line         // nil: the caller does not wait for slots
	DryRun    bool

	// Parent is the envelope that the reservation is made in; the zero ID: none.
	// Not with Settle. The lease ends with the parent's at the latest, and a hold
	// that the parent pays is by its maximum, without a forecast.
	Parent ID
	// Spill names holds that are taken from the limit where the parent has less
	// left than their Amount.
	Spill HoldSet

	// MaxWait, 0 to concurrency.MaxWait, is how long after now the reservation may
	// start. Every counter with a rate has a last start that it gave, and shows what
	// it will at that start while it is ahead. The reservation starts at the earliest
	// instant, not before any of those, at which each of them covers its hold if
	// nothing comes back; there they are taken, in the order in which the engine
	// is asked. Quotas and slots are taken at once and must fit now. The lease runs
	// from the start. What is given back before it goes to whoever asks next: a start
	// once given never moves.
	//
	// Without a MaxWait a reservation may wait for the queues of its plan
	// (quota.KindLeakyQueue), and for other limits no longer than that. With Settle
	// and with a Parent, which must have started, there is no MaxWait and no wait; with Output neither a MaxWait nor a queue. A
	// Shadow hold delays nobody: it is missed where it does not fit at the start.
	MaxWait time.Duration
}

// Waits says that the reservation may be given a start later than now.
func (r *ReserveRequest) Waits() bool {
	if r.MaxWait > 0 {
		return true
	}
	for i := range r.Holds {
		if h := &r.Holds[i]; h.Kind == quota.KindLeakyQueue && !h.Shadow && h.Amount > 0 {
			return r.Settle == nil && r.Parent == (ID{})
		}
	}
	return false
}

// QueueUntil is the latest instant, in microseconds since 1970, to which a queue may
// delay the reservation. A Shadow hold of one that would delay it further is missed,
// and takes its own place in the queue else.
func (r *ReserveRequest) QueueUntil(now int64) int64 {
	switch {
	case r.Settle != nil || r.Parent != (ID{}):
		return now
	case r.MaxWait > 0:
		return now + r.MaxWait.Microseconds()
	}
	return quota.MicrosNever - 1 // as long as the queue is
}

// Settlement is the closing part of a Charge.
type Settlement struct {
	Body    Hash   // as RefundRequest.Body
	Outcome []byte // as RefundRequest.Outcome
}

// ReserveVerdict is the kind of answer to a Reserve.
type ReserveVerdict uint8

// The answers to a Reserve.
const (
	Granted ReserveVerdict = iota + 1
	Replayed
	KeyReused
	Closed
	Stale
	Unseeded
	Refused
	ParentEnded // the parent is not known, is closed, its lease has ended or its start is ahead
	ParentFull  // MaxTreeOpen or MaxTreeDepth is reached
)

// ReserveAnswer is an engine's answer.
type ReserveAnswer struct {
	Verdict   ReserveVerdict
	Now       time.Time
	Place     int       // Refused, with Line: the caller's place in the longest of its lines, 1 the next; 0: it keeps none
	StartAt   time.Time // Granted: Now, or later for one that waits
	ExpiresAt time.Time // Granted: StartAt and the lease
	Levels    []Level   // Granted (after taking) and Refused (as they are), in the order of the holds
	Decided   Decided   // Granted, with Output or a Shadow hold: what was chosen
	Refusal   Refusal   // Refused
	Shadow    []Refusal // Granted: why each missed hold did not fit, in the order of the holds; with Output for the tokens granted
	Tickets   []Ticket  // Unseeded
	Record    Record    // Replayed
	Reclaimed int       // reservations whose lease this call found ended
}

// Reason says why a hold did not fit.
type Reason uint8

// The reasons. For slots the retry instant is the earliest lease end among the
// holders or, where all are free for those who wait, the earliest end of a place;
// for a quota the end of its period.
const (
	RateLimited        Reason = 1
	ConcurrencyLimited Reason = 2
	QuotaExhausted     Reason = 3
	ExceedsCapacity    Reason = 4 // asked more than the limit can ever hold: waiting does not help

	// QuotaHeld is what a [Broker] makes of QuotaExhausted where the call would
	// fit if nothing were held: no engine answers it.
	QuotaHeld Reason = 5

	// EnvelopeExhausted: the parent has less left than the hold asks for. Only what
	// its other children give back helps, and when that is nobody knows: RetryAt is
	// zero, and Remaining is what the parent has left.
	EnvelopeExhausted Reason = 6

	// Banned: the counter refuses everything that asks for something until the ban
	// ends: see Hold.Ban.
	Banned Reason = 7
)

// Refusal explains which hold did not fit.
type Refusal struct {
	Hold      int // index in the plan
	Reason    Reason
	Asked     quota.Amount // of the hold; with Output for Least tokens
	Remaining quota.Amount
	RetryAt   time.Time // zero for ExceedsCapacity and EnvelopeExhausted
	Sharing   int       // of a Fair hold, how many accounts use the counter, where the account is ahead of its share; else 0
}

// Stricter is the order in which [Store.Reserve] reports: what no waiting helps
// first, then the later instant, then the earlier hold.
func (r Refusal) Stricter(than Refusal) bool {
	if r.RetryAt.IsZero() != than.RetryAt.IsZero() {
		return r.RetryAt.IsZero()
	}
	if !r.RetryAt.Equal(than.RetryAt) {
		return r.RetryAt.After(than.RetryAt)
	}
	return r.Hold < than.Hold
}

// Ticket asks for a quota's ledger value.
type Ticket struct {
	Hold   int   // index in the plan
	Ticket int64 // to be given back to Seed
}

// SeedRequest brings one quota counter's ledger value.
type SeedRequest struct {
	Account string
	Counter Counter
	Period  quota.Period
	Ticket  int64
	Used    quota.Amount
	Version int64
}

// RefundRequest closes a reservation.
type RefundRequest struct {
	Account   string
	ID        ID
	Lease     time.Duration // as reserved; with Retention it says whether an unknown id is young
	Retention time.Duration
	Body      Hash
	Actual    []quota.Amount // what each hold really used, in the order of the holds; ignored for slots
	Outcome   []byte         // opaque
	Token     []byte         // as reserved
	Kin       Kin            // of a reservation that the engine does not know, beside Holds

	// OnlyHeld closes the reservation only while its lease has not ended; after
	// that it is RefundEnded. Of an unknown id the lease that it was made with
	// counts.
	OnlyHeld bool

	// Holds is empty at first. When the engine answers RefundUnknown, the
	// broker asks again with the reservation's holds, and the engine creates
	// the record closed: unposted actual, bucket charged, no slot.
	Holds []Hold
}

// RefundVerdict is the kind of answer to a Refund.
type RefundVerdict uint8

// The answers to a Refund.
const (
	RefundSettled   RefundVerdict = iota + 1 // closed by this call
	RefundSame                               // closed before with the same body
	RefundConflict                           // closed before with another body
	RefundUnknown                            // no record, and minted + lease + retention has not passed: ask again with Holds
	RefundForgotten                          // no record, and older: only the ledger can tell
	RefundEnded                              // OnlyHeld, and the lease has ended: nothing was done
)

// RefundAnswer is an engine's answer.
type RefundAnswer struct {
	Verdict   RefundVerdict
	Now       time.Time
	Record    Record  // as recorded: Settled, Same, Conflict, and Ended unless it is unknown
	Levels    []Level // Settled: the counters afterwards, in the order of the holds
	Reclaimed int
}

// Record is what an engine remembers of a reservation.
type Record struct {
	State     State
	StartAt   time.Time // StateHeld: the start that it was given, if that was later than the Reserve; else zero
	ExpiresAt time.Time
	Token     []byte // empty once the closing is confirmed and nobody may replay the key
	Rank      ledger.Rank
	Body      Hash // of the closing
	Outcome   []byte
	Actual    []quota.Amount
	Late      bool
	ClosedAt  time.Time
	Confirmed bool // the ledger holds the closing
}

// CounterUsage is a ledger value for one quota counter.
type CounterUsage struct {
	Counter Counter
	Period  quota.Period
	Used    quota.Amount
	Version int64
}

// ConfirmRequest names the ledger's winner for a reservation.
type ConfirmRequest struct {
	Account   string
	ID        ID
	Lease     time.Duration
	Retention time.Duration
	Rank      ledger.Rank
	Body      Hash
	Outcome   []byte
	Actual    []quota.Amount
	Late      bool
	ClosedAt  time.Time
	Usage     []CounterUsage
	Token     []byte
	Kin       Kin // as RefundRequest.Kin

	// Holds is empty at first. When the engine answers ConfirmUnknown, the
	// broker asks again with them, and the engine creates the record closed
	// and confirmed, its buckets charged.
	Holds []Hold
}

// ConfirmVerdict is the kind of answer to a Confirm.
type ConfirmVerdict uint8

// The answers to a Confirm. Usage values are taken over in every case.
const (
	ConfirmAdopted ConfirmVerdict = iota + 1 // the record holds the winner, confirmed
	ConfirmStopped                           // the record has a higher rank, or is confirmed already
	ConfirmUnknown                           // no record, still young: ask again with Holds
	ConfirmOld                               // no record, and too old to need one
)

// Pending is a closing that waits for the ledger.
type Pending struct {
	Account string
	ID      ID
	Record  Record // StateExpired (rank 1) or StateSettled (rank 2); Actual per hold, by the expiry rule for rank 1
}

// SweepAnswer is what a Sweep found.
type SweepAnswer struct {
	Pending []Pending
	Expired int       // leases that this sweep found ended
	More    bool      // more was due than max or the bounds of one call allowed
	Now     time.Time // the engine's clock

	// Epoch names the data that the engine has. It changes when any part of it
	// was lost, replaced or rolled back, or moved to another server; all brokers
	// see the same. A server that is away does not change it. "" as long as this
	// engine has not seen every server since it was made: it says nothing then.
	// It may be known beside an error.
	Epoch string
}
