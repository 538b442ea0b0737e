package replay

import (
	"context"
	"sync"
	"time"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

const (
	// afterLease is how long after its lease's end what a crashed caller held
	// may stay away: the broker's promise.
	afterLease = time.Second
	// postWithin is how long the ledger may take to record the last closings.
	postWithin = 10 * time.Second
	// restWithin is how long a replay waits for a bucket to fill up. A slower
	// one is judged by its sums alone.
	restWithin = time.Minute

	pollEvery  = 50 * time.Millisecond
	inspectors = 16 // reservations that are looked at at once
)

// inspect waits for the last lease and gathers what the broker then says.
func (d *driver) inspect(ctx context.Context, before *budgetv1.GetQuotaResponse, began time.Time, progress Progress) (Evidence, error) {
	var e Evidence
	d.mu.Lock()
	records, lastEnd := d.records, d.lastEnd
	d.mu.Unlock()
	if !lastEnd.IsZero() {
		progress.Stage("waiting for the last lease", 0)
		if err := sleep(ctx, time.Until(lastEnd.Add(afterLease))); err != nil {
			return e, err
		}
	}
	first, err := d.caller.quota(ctx)
	if err != nil {
		return e, err
	}
	e.Slots = levels(first, budgetv1.LimitKind_LIMIT_KIND_SLOTS)
	e.Buckets = d.buckets(before, first, time.Since(began))

	deadline := time.Now().Add(postWithin)
	progress.Stage("checking reservations", int64(len(records)))
	if err := d.lookAtAll(ctx, records, deadline, &e, progress); err != nil {
		return e, err
	}
	last, err := d.quiet(ctx, deadline)
	if err != nil {
		return e, err
	}
	e.Quotas = levels(last, budgetv1.LimitKind_LIMIT_KIND_QUOTA)
	e.LedgerTokens = last.Totals["tokens"] - before.Totals["tokens"]
	e.LedgerRequests = last.Totals["requests"] - before.Totals["requests"]
	e.Counters = d.counters(before, last)
	e.PeriodChanged = !last.TotalsPeriod.GetStart().AsTime().Equal(before.TotalsPeriod.GetStart().AsTime())

	progress.Stage("waiting for the buckets", 0)
	if err := d.rest(ctx, &e); err != nil {
		return e, err
	}
	if e.Totals, err = d.tally.result(); err != nil {
		d.problem("the sums of the trace: %v", err)
	}
	e.Totals.Retries = d.caller.retries.Load()
	e.Problems = d.allProblems()
	return e, nil
}

// levels lists the limits of one kind that are the account's own. A pool is
// shared with accounts that the replay knows nothing of.
func levels(answer *budgetv1.GetQuotaResponse, kind budgetv1.LimitKind) []Level {
	var list []Level
	for _, l := range answer.Limits {
		if l.Kind == kind && l.Pool == "" {
			list = append(list, Level{Limit: l.Limit, Held: l.Held, Unposted: l.Unposted})
		}
	}
	return list
}

// quiet waits until no quota holds anything or has anything unposted.
func (d *driver) quiet(ctx context.Context, deadline time.Time) (*budgetv1.GetQuotaResponse, error) {
	for {
		answer, err := d.caller.quota(ctx)
		if err != nil {
			return nil, err
		}
		busy := false
		for _, l := range levels(answer, budgetv1.LimitKind_LIMIT_KIND_QUOTA) {
			busy = busy || l.Held != 0 || l.Unposted != 0
		}
		if !busy || time.Now().After(deadline) {
			return answer, nil
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return nil, err
		}
	}
}

// counters lists what the quotas grew by that count the replay's calls one to
// one.
func (d *driver) counters(before, after *budgetv1.GetQuotaResponse) []Counter {
	used := map[string]int64{}
	for _, l := range before.Limits {
		used[l.Limit] = l.Used
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []Counter
	for _, l := range after.Limits {
		if l.Kind == budgetv1.LimitKind_LIMIT_KIND_QUOTA && d.counts(l) {
			list = append(list, Counter{Limit: l.Limit, Meter: l.Meter, Used: l.Used - used[l.Limit]})
		}
	}
	return list
}

// counts says whether a limit counts the replay's own meters, unweighted.
func (d *driver) counts(l *budgetv1.LimitStatus) bool {
	return l.Pool == "" && (l.Meter == "tokens" || l.Meter == "requests") && d.plain[l.Limit]
}

func (d *driver) buckets(before, after *budgetv1.GetQuotaResponse, elapsed time.Duration) []Bucket {
	missing := map[string]int64{}
	for _, l := range before.Limits {
		missing[l.Limit] = l.LimitAmount - l.Remaining
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []Bucket
	for _, l := range after.Limits {
		if l.Kind != budgetv1.LimitKind_LIMIT_KIND_BUCKET || l.Pool != "" || (l.Meter != "tokens" && l.Meter != "requests") {
			continue
		}
		list = append(list, Bucket{
			Limit: l.Limit, Meter: l.Meter, Capacity: l.LimitAmount, Plain: d.plain[l.Limit],
			Before: missing[l.Limit], Missing: l.LimitAmount - l.Remaining,
			RefillAmount: l.RefillAmount, RefillEveryMs: l.RefillEveryMs,
			MayRefill: refillWithin(elapsed, l.RefillAmount, l.RefillEveryMs),
		})
	}
	return list
}

// rest waits until each bucket has had the time to refill all that can be missing
// from it, where that is soon, and looks at it again.
func (d *driver) rest(ctx context.Context, e *Evidence) error {
	totals, _ := d.tally.result() // inspect reports its error
	since := time.Now()           // nothing is held any more
	var wait time.Duration
	resting := map[string]bool{}
	for _, b := range e.Buckets {
		missing := b.Missing
		switch {
		case b.Plain && b.Meter == "requests":
			missing = b.Before + totals.Refunded.Requests
		case b.Plain:
			missing = b.Before + totals.Refunded.Tokens + e.ExpiredTokens
		}
		// A hold never takes more than there is; only overruns go below zero.
		missing = min(missing, max(b.Before, b.Capacity)+totals.OverrunTokens)
		if takes := refillTime(missing, b.RefillAmount, b.RefillEveryMs); takes <= restWithin {
			resting[b.Limit] = true
			wait = max(wait, takes)
		}
	}
	if len(resting) == 0 {
		return nil
	}
	if err := sleep(ctx, time.Until(since.Add(wait))); err != nil {
		return err
	}
	answer, err := d.caller.quota(ctx)
	if err != nil {
		return err
	}
	for i := range e.Buckets {
		b := &e.Buckets[i]
		for _, l := range answer.Limits {
			if l.Pool == "" && l.Limit == b.Limit && resting[l.Limit] {
				b.Rested, b.RestedMissing = true, l.LimitAmount-l.Remaining
			}
		}
	}
	return nil
}

// lookAtAll asks the broker for every reservation.
func (d *driver) lookAtAll(ctx context.Context, records []record, deadline time.Time, e *Evidence, progress Progress) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan record)
	var running sync.WaitGroup
	var mu sync.Mutex // of e
	for range inspectors {
		running.Go(func() {
			for r := range work {
				if err := d.lookAt(ctx, r, deadline, &mu, e); err != nil {
					cancel(err)
				}
				progress.Add(1)
			}
		})
	}
feed:
	for _, r := range records {
		select {
		case work <- r:
		case <-ctx.Done():
			break feed
		}
	}
	close(work)
	running.Wait()
	return context.Cause(ctx)
}

// lookAt follows a reservation until the ledger has it, and notes how it ended.
func (d *driver) lookAt(ctx context.Context, r record, deadline time.Time, mu *sync.Mutex, e *Evidence) error {
	var story *budgetv1.GetReservationResponse
	for {
		var err error
		if story, err = d.caller.reservation(ctx, r.id); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			d.problem("GetReservation of %s: %v", d.where(r.request), err)
			return nil
		}
		if story.LedgerState == budgetv1.LedgerState_LEDGER_STATE_POSTED || time.Now().After(deadline) {
			break
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
	mu.Lock()
	defer mu.Unlock()
	d.judge(r, story, e)
	return nil
}

// judge notes how one reservation ended.
func (d *driver) judge(r record, story *budgetv1.GetReservationResponse, e *Evidence) {
	held := d.asked(r.request)
	charged := story.Outcome.GetCharged()["tokens"]
	posted := story.LedgerState == budgetv1.LedgerState_LEDGER_STATE_POSTED
	if !posted {
		e.NotPosted++
	}
	switch story.State {
	case budgetv1.ReservationState_RESERVATION_STATE_HELD:
		e.Leaked++
		if r.end != endRefunded {
			d.tally.crashed(r.request, held)
		}
	case budgetv1.ReservationState_RESERVATION_STATE_EXPIRED:
		if posted {
			e.Expired++
		}
		e.ExpiredTokens += charged
		if charged != 0 && charged != held {
			d.problem("%s expired with %d tokens charged; it held %d", d.where(r.request), charged, held)
		}
		if r.end == endRefunded {
			d.problem("%s was refunded, and is expired in the ledger", d.where(r.request))
		} else {
			d.tally.crashed(r.request, held)
		}
	case budgetv1.ReservationState_RESERVATION_STATE_SETTLED, budgetv1.ReservationState_RESERVATION_STATE_SETTLED_LATE:
		if posted {
			e.Settled++
		}
		if charged != r.request.Tokens() {
			d.problem("%s is settled with %d tokens; it used %d", d.where(r.request), charged, r.request.Tokens())
		}
		switch r.end {
		case endCrashed:
			d.problem("%s crashed, and is settled in the ledger", d.where(r.request))
			d.tally.crashed(r.request, held)
		case endUncertain:
			// The Refund of the killed worker had come through.
			d.tally.refunded(r.request, held, story.Outcome.GetGivenBack()["tokens"], story.Outcome.GetOverrun()["tokens"])
		}
	default:
		d.problem("%s is in the state %v", d.where(r.request), story.State)
	}
}
