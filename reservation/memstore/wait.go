package memstore

import (
	"math"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// A limit with a rate may have given a start that is ahead. What it shows, takes and
// gets back until then is as of that start: see reservation.ReserveRequest. A queue
// gives starts by its own state alone, and accepts as of now.

// at is the instant as of which a limit with a rate counts.
func (c *counter) at(now int64) int64 { return max(now, c.start) }

// left is what a call could take now.
func (l *look) left(now int64) quota.Amount {
	if l.at > now {
		return min(l.remaining, 0)
	}
	return l.remaining
}

// refillsFrom is the instant from which on a bucket's level, as it is shown, grows:
// where the clock stepped back, that of the level, which is ahead.
func (l *look) refillsFrom() int64 {
	if l.counter == nil {
		return l.at
	}
	return max(l.at, l.counter.bucketState.at)
}

// startFor is the earliest instant at which so much of a limit with a rate can
// start; never where a queue does not accept it.
func (l *look) startFor(h *reservation.Hold, want quota.Amount) int64 {
	switch h.Kind {
	case quota.KindBucket:
		if want <= l.remaining {
			return l.at
		}
		return later(l.refillsFrom(), h.Bucket.MicrosUntil(l.remaining, l.remainder, want))
	case quota.KindGCRA:
		return later(l.at, quota.GCRA(h.Bucket).MicrosUntil(l.arrival, l.at, want))
	case quota.KindLeakyQueue:
		if want > l.remaining {
			return math.MaxInt64
		}
		return max(l.at, l.arrival)
	}
	return later(l.at, h.Window.MicrosUntil(l.counted, l.at, want))
}

// firstFor is startFor for a call of the look's account, now or later. Who is ahead of
// its share is given no start later.
func (l *look) firstFor(h *reservation.Hold, want quota.Amount, now int64) int64 {
	first := l.startFor(h, want)
	if l.isAhead && first > now {
		return math.MaxInt64
	}
	return first
}

// retryFor is when to ask again for what can't start in time.
func (l *look) retryFor(h *reservation.Hold, want quota.Amount) int64 {
	if h.Kind == quota.KindLeakyQueue && want > l.remaining {
		return later(l.at, quota.Queue(h.Bucket).MicrosUntil(l.arrival, l.at, want))
	}
	return l.startFor(h, want)
}

// startUntil is the latest instant at which the reservation may start.
func startUntil(q *reservation.ReserveRequest, looks []look, now int64) int64 {
	if q.MaxWait > 0 {
		return now + q.MaxWait.Microseconds()
	}
	until := now
	if q.Waits() {
		for i := range q.Holds {
			if h := &q.Holds[i]; h.Kind == quota.KindLeakyQueue && !h.Shadow && h.Amount > 0 && h.Amount+h.Keep <= looks[i].remaining {
				until = max(until, looks[i].startFor(h, h.Amount+h.Keep))
			}
		}
	}
	return until
}

// startOf is when the reservation starts, all of whose holds fit but those of shadow
// limits: what one limit covers at an instant it covers later, so the latest of
// theirs is the earliest for all.
func startOf(q *reservation.ReserveRequest, looks []look, now int64) int64 {
	start := now
	for i := range q.Holds {
		if h := &q.Holds[i]; h.Kind.HasRate() && !h.Shadow && h.Amount > 0 && looks[i].fund == nil {
			start = max(start, looks[i].startFor(h, h.Amount+h.Keep))
		}
	}
	return start
}

// passTo lets the looks of what has a rate, and is taken, show the start.
func passTo(q *reservation.ReserveRequest, looks []look, start int64) {
	for i := range q.Holds {
		if h := &q.Holds[i]; h.Kind.HasRate() && h.Amount > 0 && looks[i].fund == nil {
			looks[i].passTo(h, start)
		}
	}
}

// passTo moves the look to an instant that is not before its own.
func (l *look) passTo(h *reservation.Hold, start int64) {
	switch h.Kind {
	case quota.KindBucket:
		l.remaining, l.remainder = h.Bucket.Advance(l.remaining, l.remainder, start-l.refillsFrom())
	case quota.KindLeakyQueue:
		l.arrival = max(l.arrival, start)
		return
	case quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
		l.counted = h.Window.Advance(l.counted, start)
	}
	l.at = start
}

// passStart forgets a start that has passed, as the counter is changed: where the
// clock steps back, it is not ahead again.
func (c *counter) passStart(now int64) {
	if c.start <= now {
		c.start, c.booked = 0, 0
	}
}

// rebook notes that what a hold costs goes from one amount to another, by a
// difference, and returns what those who have the last start, which is ahead, have
// of it then.
func (c *counter) rebook(h *hold, before, actual, difference quota.Amount, now int64) int64 {
	c.passStart(now)
	if c.start == 0 || h.record.start != c.start {
		return c.booked
	}
	switch {
	case h.kind == quota.KindBucket:
		c.booked += int64(difference)
	case h.kind == quota.KindGCRA && h.record.kin == nil:
		c.booked += quota.GCRA(h.bucket).Cost(actual) - quota.GCRA(h.bucket).Cost(before)
	case h.kind == quota.KindGCRA:
		c.booked += quota.GCRA(h.bucket).Cost(difference) - quota.GCRA(h.bucket).Cost(-difference)
	}
	c.booked = max(c.booked, 0)
	return c.booked
}

// giveStart notes that the counter gave a start, of which so much is booked.
func (c *counter) giveStart(start, now int64, booked quota.Amount) {
	c.passStart(now)
	if c.key.kind == quota.KindLeakyQueue || start <= now || start < c.start {
		return
	}
	if start > c.start {
		c.start, c.booked = start, 0
	}
	c.booked += int64(booked)
}
