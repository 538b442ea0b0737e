package reservation

import (
	"fmt"
	"slices"
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

// waitForStart is how long the reservation may wait for what its limits refill: the
// engine's MaxWait. Where nothing bounds it, it is the caller's.
//
// Until a start that is ahead the limits of a booking let nobody else in. So one of them
// bounds how far ahead it is by its own max_wait. And where one keeps a share from the
// call's priority, those for whom it is kept would have none of it till then: the call
// waits no longer than its queues could have it wait.
func (w *work) waitForStart() time.Duration {
	if w.parent != nil || w.token.Charge {
		return 0
	}
	queue := w.plan.queueWait()
	wait := w.maxWait
	if w.plan.keepsShare() {
		wait = min(wait, queue)
	}
	most, bounding := w.plan.waitBound()
	if bounding == nil {
		return wait
	}
	if queue == 0 {
		return min(wait, most)
	}
	// An engine takes 0 for as long as the queue is.
	if wait == 0 {
		wait = queue
	}
	return max(min(wait, most), time.Microsecond)
}

// longestWait is how far ahead the start may be that the engine gives.
func (w *work) longestWait() time.Duration {
	longest := w.waitForStart()
	if longest == 0 && !w.token.Charge && w.parent == nil {
		longest = w.plan.queueWait()
	}
	return min(longest, concurrency.MaxWait)
}

// delays says that the hold may put off its call's start.
func (h *Hold) delays() bool { return h.Kind.HasRate() && h.Amount > 0 && !h.Shadow }

// queueWait is how long the longest of the plan's queues may delay the call; 0 without
// one.
func (p plan) queueWait() time.Duration {
	var longest time.Duration
	for i := range p.holds {
		if h := &p.holds[i].Hold; h.delays() && h.Kind == quota.KindLeakyQueue {
			longest = max(longest, h.window())
		}
	}
	return min(longest, concurrency.MaxWait)
}

// keepsShare says that a limit that may be booked ahead keeps a share from the call.
func (p plan) keepsShare() bool {
	return slices.ContainsFunc(p.holds, func(h plannedHold) bool {
		return h.delays() && h.Kind != quota.KindLeakyQueue && h.Keep > 0
	})
}

// waitBound is the least max_wait of the limits that the call asks something of, and
// whose it is; nil without one.
func (p plan) waitBound() (least time.Duration, bounding *quota.Limit) {
	for i, limit := range p.limits {
		if limit.MaxWait != nil && p.holds[i].delays() && (bounding == nil || *limit.MaxWait < least) {
			least, bounding = *limit.MaxWait, limit
		}
	}
	return least, bounding
}

// tellBound notes in a refusal which limit's max_wait it is due to: the caller would
// have waited for the start.
func (w *work) tellBound(refused *RefusedLimit) {
	most, bounding := w.plan.waitBound()
	if bounding == nil || w.parent != nil || w.token.Charge || w.plan.keepsShare() ||
		refused.Reason != RateLimited || refused.Sharing > 0 || !refused.Retryable() {
		return
	}
	if refused.Kind == quota.KindLeakyQueue && refused.Asked > refused.Remaining {
		return // the queue is full
	}
	patience := w.maxWait
	if patience == 0 {
		patience = w.plan.queueWait()
	}
	if ahead := refused.RetryAt.Sub(refused.Now); ahead > most && ahead <= patience {
		refused.WaitBound = WaitBound{Limit: bounding.Name, Most: most}
	}
}
