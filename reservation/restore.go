package reservation

import (
	"fmt"
	"time"

	"github.com/budgetd/budgetd/concurrency"
	"github.com/budgetd/budgetd/quota"
)

// MaxOpenPage is how many open reservations one call of [Store.Open] returns.
const MaxOpenPage = 1000

// MaxCursorBytes bounds the cursor of a page.
const MaxCursorBytes = 256

// RestoreRequest brings back an open reservation after the engine lost its
// data. The broker that made it knows it, or a caller shows its token.
//
// An id that the engine knows, in whatever state, changes nothing. One whose
// lease has ended by ExpiresAt changes nothing either: the ledger alone decides
// of its end. Else the record is written as held until ExpiresAt, and every hold
// is taken whether or not it fits: it was granted before. A bucket is charged
// (it may go below zero; its parameters are those of the last Reserve that met
// it, or the hold's), a slot is taken beyond the cap if need be, a quota's
// counter that is not seeded keeps the hold until it is.
//
// An idempotency key that stands for another reservation by now stays with it.
// The error is quota.ErrOverflow where a quota's counter would hold more than
// quota.MaxAmount in all; nothing is restored then.
type RestoreRequest struct {
	Account   string
	ID        ID
	Holds     []Hold
	ExpiresAt time.Time // the lease's end, at most MaxRestoredLease from now
	Retention time.Duration
	Key       string // idempotency key, "" for none or when it is not known
	Body      Hash
	Token     []byte
}

// Validate returns an error that wraps [ErrBadRequest] and names the field
// unless the request is within its bounds.
func (r *RestoreRequest) Validate() error {
	if err := ValidateAccount(r.Account); err != nil {
		return err
	}
	if r.ExpiresAt.IsZero() {
		return badRequest("expires_at", "it is missing")
	}
	if err := checkRange("retention", r.Retention, 0, concurrency.MaxRetention); err != nil {
		return err
	}
	if err := checkSize("key", len(r.Key), MaxKeyBytes); err != nil {
		return err
	}
	if err := checkSize("token", len(r.Token), MaxTokenBytes); err != nil {
		return err
	}
	return ValidateHolds(r.Holds)
}

// MaxRestoredLease is how far ahead a restored lease may end: the clock of the
// server that took over may be behind that of the one before.
const MaxRestoredLease = concurrency.MaxLease + MintSkew

// LeaseTooLong is the error, which wraps [ErrBadRequest], for a Restore whose
// lease ends more than [MaxRestoredLease] from now.
func LeaseTooLong(expires, now time.Time) error {
	return badRequest("expires_at", "it is %s from now, at most %s are accepted", expires.Sub(now), MaxRestoredLease)
}

// RestoreVerdict is the kind of answer to a Restore.
type RestoreVerdict uint8

// The answers to a Restore.
const (
	Restored     RestoreVerdict = iota + 1 // held again
	RestoreKnown                           // the engine has a record of the id
	RestoreEnded                           // the lease has ended
)

// OpenReservation is one held reservation.
type OpenReservation struct {
	ID        ID
	ExpiresAt time.Time
	Token     []byte
}

// OpenPage is a part of an account's open reservations.
type OpenPage struct {
	Open   []OpenReservation
	Cursor string // of the next page; "" when this was the last
	Now    time.Time
}

// AuditCounter names a quota counter to be audited.
type AuditCounter struct {
	Counter Counter
	Period  quota.Period
}

// MaxAuditCounters bounds the counters of one AuditRequest, and MaxAuditRecords
// the records of an account that one step adds up.
const (
	MaxAuditCounters = 1024
	MaxAuditRecords  = 100_000
)

// AuditRequest asks for an account's quota counters beside what its records add
// up to. With Repair, a counter whose Held or Unposted is not the sum of the
// records' shares is set to that sum in the same step.
type AuditRequest struct {
	Account  string
	Counters []AuditCounter
	Repair   bool
}

// Validate returns an error that wraps [ErrBadRequest] and names the field
// unless the request is within its bounds.
func (r *AuditRequest) Validate() error {
	if err := ValidateAccount(r.Account); err != nil {
		return err
	}
	if len(r.Counters) > MaxAuditCounters {
		return badRequest("counters", "%d are given, at most %d are accepted", len(r.Counters), MaxAuditCounters)
	}
	for i := range r.Counters {
		c := &r.Counters[i]
		if err := c.Counter.validate(); err != nil {
			return fmt.Errorf("counters[%d]: %w", i, err)
		}
		if err := validateQuota(&c.Counter, &c.Period); err != nil {
			return fmt.Errorf("counters[%d]: %w", i, err)
		}
	}
	return nil
}

// CounterAudit is one quota counter: what it says, and what the records that
// take part in it add up to.
type CounterAudit struct {
	Counter     Counter
	PeriodKey   string
	Seeded      bool // of this incarnation; else Used and Version say nothing
	Used        quota.Amount
	Version     int64
	Held        quota.Amount
	Unposted    quota.Amount
	HeldSum     quota.Amount // of the records
	UnpostedSum quota.Amount
	Repaired    bool
}

// AuditAnswer is an engine's answer to an Audit: a row for each counter that
// was named, in order, then those that only the records named.
type AuditAnswer struct {
	Counters []CounterAudit
	Records  int  // open, or waiting for the ledger
	Waiting  int  // of them, those that wait for the ledger; 0 with TooMany
	TooMany  bool // more than MaxAuditRecords: nothing was added up or repaired; sums are 0
	Now      time.Time
}
