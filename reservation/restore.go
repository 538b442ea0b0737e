package reservation

import (
	"time"

	"github.com/budgetd/budgetd/concurrency"
)

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
	StartAt   time.Time // of one that waits; zero when it has started. What has a rate is taken there
	ExpiresAt time.Time // the lease's end, at most MaxRestoredLease from now
	Retention time.Duration
	Key       string // idempotency key, "" for none or when it is not known
	Body      Hash
	Token     []byte
	// Kin: where the parent is held, its lease runs and it has as much left, the
	// holds that were taken from it are again, and the lease ends with the parent's
	// at the latest. Else the reservation is one without a parent from now on.
	Kin Kin
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
	if r.StartAt.After(r.ExpiresAt) {
		return badRequest("start_at", "it is after the lease's end")
	}
	return validateRecord(r.Retention, r.Key, r.Token, r.Holds)
}

// MaxRestoredLease is how far ahead a restored lease may end: the clock of the
// server that took over may be behind that of the one before.
const MaxRestoredLease = concurrency.MaxLease + concurrency.MaxWait + MintSkew

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
