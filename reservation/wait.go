package reservation

import (
	"fmt"
	"time"

	"github.com/budgetd/budgetd/concurrency"
	"github.com/budgetd/budgetd/quota"
)

// checkedWait is how long an ask may wait for its start.
func checkedWait(ask *Ask) (time.Duration, error) {
	wait := ask.MaxWait
	if wait == nil {
		return 0, nil
	}
	if ask.Parent != "" && *wait != 0 {
		return 0, &InvalidError{Field: "max_wait", Problem: "is stated with a parent, and what is made in an envelope starts at once", Bound: "leave it out, or the parent"}
	}
	if *wait < 0 || *wait > concurrency.MaxWait {
		return 0, &InvalidError{
			Field: "max_wait", Problem: fmt.Sprintf("%v is not between 0 and %v", *wait, concurrency.MaxWait),
			Bound: fmt.Sprintf("0 to %v; leave it out to wait only where a limit is a leaky queue", concurrency.MaxWait),
		}
	}
	return wait.Truncate(time.Microsecond), nil
}

// startsIn is how long a recorded start is ahead at an instant of the engine's
// clock; 0 when it has passed or there is none.
func startsIn(record Record, now time.Time) time.Duration {
	if record.StartAt.IsZero() {
		return 0
	}
	return max(record.StartAt.Sub(now), 0)
}

// longestWait is how far ahead the start may be that the engine gives.
func (w *work) longestWait() time.Duration {
	longest := w.maxWait
	if longest == 0 && !w.token.Charge && w.parent == nil {
		for i := range w.plan.holds {
			if h := &w.plan.holds[i].Hold; h.Kind == quota.KindLeakyQueue && !h.Shadow && h.Amount > 0 {
				longest = max(longest, h.window())
			}
		}
	}
	return min(longest, concurrency.MaxWait)
}
