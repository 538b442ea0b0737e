package concurrency

import (
	"errors"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// Bounds of a lease: how long a reservation lives without a Renew.
const (
	DefaultLease = 60 * time.Second
	MinLease     = time.Millisecond
	MaxLease     = 24 * time.Hour
)

// Bounds of the retention: how long after its lease's end a closed reservation
// and its idempotency key are remembered.
const (
	DefaultRetention = 10 * time.Minute
	MinRetention     = time.Second
	MaxRetention     = 24 * time.Hour
)

// MaxWait is the longest that a caller may wait for its start: see
// reservation.ReserveRequest.
const MaxWait = quota.MaxWait

// ErrLease says that a lease is out of bounds.
var ErrLease = errors.New("invalid lease")

// ErrRetention says that a retention is out of bounds.
var ErrRetention = errors.New("invalid retention")

// ValidateLease returns an error that wraps [ErrLease] unless
// MinLease <= lease <= MaxLease. Whoever leaves the lease out gets
// [DefaultLease]; a stated 0 is refused.
func ValidateLease(lease time.Duration) error {
	if lease < MinLease || lease > MaxLease {
		return fmt.Errorf("%w: lease %v is not between %v and %v; leave it out for %v, and Renew for longer calls", ErrLease, lease, MinLease, MaxLease, DefaultLease)
	}
	return nil
}

// ValidateRetention returns an error that wraps [ErrRetention] unless
// MinRetention <= retention <= MaxRetention.
func ValidateRetention(retention time.Duration) error {
	if retention < MinRetention || retention > MaxRetention {
		return fmt.Errorf("%w: retention %v is not between %v and %v; leave it out for %v", ErrRetention, retention, MinRetention, MaxRetention, DefaultRetention)
	}
	return nil
}

// ExpiresAt is the end of a lease that starts at startMicros, in microseconds.
// A fraction of a microsecond is rounded up, so that a caller never has less
// than it asked for.
func ExpiresAt(startMicros int64, lease time.Duration) int64 {
	micros := int64(lease / time.Microsecond)
	if lease%time.Microsecond > 0 {
		micros++
	}
	return startMicros + micros
}

// RetentionFor is how long a closed reservation is remembered after its lease's
// end: the configured time, but at least the longest time that any limit which
// it touched takes to refill (else a forgotten debt could be forgiven), and at
// most MaxRetention.
func RetentionFor(configured, longestRefill time.Duration) time.Duration {
	return min(max(configured, longestRefill), MaxRetention)
}
