package ledger

import (
	"fmt"
	"time"
)

// MinRetention is the shortest time, above 0, for which a ledger keeps a month
// after its end. A closing of a month that is not kept is refused for good, so
// it covers what may come late: a lease (24 h at most), the time in which its
// reservation is remembered (24 h at most), callers that repeat a Refund for
// days, and a node that comes back with a spool after weeks. Nor is the month
// before the present one ever in question.
const MinRetention = 40 * 24 * time.Hour

// ValidateRetention returns an error that wraps [ErrInvalid] unless retention is
// 0, which keeps every month, or at least MinRetention.
func ValidateRetention(retention time.Duration) error {
	if retention != 0 && retention < MinRetention {
		return fmt.Errorf("%w: retention: %s is less than %s (40 days); 0 keeps every month", ErrInvalid, retention, MinRetention)
	}
	return nil
}
