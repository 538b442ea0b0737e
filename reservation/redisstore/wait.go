package redisstore

import (
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// left is what can be taken now of what remains: see lua/start.lua.
func (c counterState) left(remaining quota.Amount, now int64) quota.Amount {
	if c.start > now {
		return min(remaining, 0)
	}
	return remaining
}

// refillsFrom is the instant from which on a bucket's level grows: where the clock
// stepped back, that of the level, which is ahead.
func (c counterState) refillsFrom(now int64) int64 { return max(now, c.start, c.of) }

// startFor is the earliest instant at which so much of a limit with a rate can start;
// quota.MicrosNever where a queue does not accept it.
func (c counterState) startFor(h *reservation.Hold, want quota.Amount, now int64) int64 {
	at := max(now, c.start)
	var wait int64
	switch h.Kind {
	case quota.KindBucket:
		if wait = h.Bucket.MicrosUntil(c.level, c.rest, want); wait > 0 {
			at = c.refillsFrom(now)
		}
	case quota.KindGCRA:
		wait = quota.GCRA(h.Bucket).MicrosUntil(c.arrival, at, want)
	case quota.KindLeakyQueue:
		if want > quota.Queue(h.Bucket).Remaining(c.arrival, now) {
			return quota.MicrosNever
		}
		return max(now, c.arrival)
	default:
		wait = h.Window.MicrosUntil(c.counted, at, want)
	}
	return later(at, wait)
}

// retryFor is when to ask again for what can't start in time.
func (c counterState) retryFor(h *reservation.Hold, want quota.Amount, now int64) int64 {
	q := quota.Queue(h.Bucket)
	if h.Kind == quota.KindLeakyQueue && want > q.Remaining(c.arrival, now) {
		return later(now, q.MicrosUntil(c.arrival, now, want))
	}
	return c.startFor(h, want, now)
}

// waitOf is how long the script may let a reservation wait, in microseconds: -1 for
// as long as the queues of its plan. What holds from a pool on another node starts at
// once or not at all: see pools.go.
func waitOf(r *reservation.ReserveRequest, atOnce bool) int64 {
	switch {
	case atOnce || !r.Waits():
		return 0
	case r.MaxWait > 0:
		return r.MaxWait.Microseconds()
	}
	return -1
}

// startUntil is the latest instant at which a reservation may start.
func startUntil(r *reservation.ReserveRequest, states []counterState, wait, now int64) int64 {
	if wait >= 0 {
		return now + wait
	}
	until := now
	for i := range r.Holds {
		h := &r.Holds[i]
		if h.Kind != quota.KindLeakyQueue || h.Shadow || h.Amount == 0 {
			continue
		}
		if start := states[i].startFor(h, h.Amount+h.Keep, now); start != quota.MicrosNever {
			until = max(until, start)
		}
	}
	return until
}
