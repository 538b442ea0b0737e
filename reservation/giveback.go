package reservation

import (
	"time"

	"github.com/budgetd/budgetd/quota"
)

// GiveBackAnswer is what a [Store.GiveBack] did.
type GiveBackAnswer struct {
	Given  []quota.Amount // what each bucket took, 0 to the hold's amount
	Levels []Level        // of the holds afterwards
	Now    time.Time
}

// ValidateGiveBack returns an error that wraps [ErrBadRequest] and names the
// field unless the holds are of buckets and within their bounds.
func ValidateGiveBack(account string, holds []Hold) error {
	if err := ValidateAccount(account); err != nil {
		return err
	}
	for i := range holds {
		if holds[i].Kind != quota.KindBucket {
			return badRequest("holds", "that at %d is of no bucket", i)
		}
	}
	return ValidateHolds(holds)
}
