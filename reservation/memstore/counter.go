package memstore

import (
	"math"
	"time"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// counterKey names a counter in its account or pool. Each period of a quota
// has a counter of its own.
type counterKey struct {
	kind                 quota.Kind
	limit, scope, period string
}

func keyOf(h *reservation.Hold) counterKey {
	key := counterKey{kind: h.Kind, limit: h.Limit, scope: h.Scope}
	if h.Kind == quota.KindQuota {
		key.period = h.Period.Key
	}
	return key
}

// counter is the state of one limit in one scope.
type counter struct {
	key        counterKey
	space      *space
	references int // records that point here; while there are any, it stays

	idleAt    int64 // when it may be dropped, while idleIndex >= 0
	idleIndex int

	start  int64 // of a limit with a rate: the last start that it gave ahead; 0 for none
	booked int64 // what those who were given that start have of it: bucket, units; GCRA, microseconds

	bucketState
	risk    quota.Amount   // bucket: open sum of the risks of its holds; they keep the counter
	arrival int64          // GCRA: theoretical arrival time; queue: when it is empty
	counted *quota.Counted // windows; nil: nothing
	slots   slotHeap
	line    []waiting  // slots: who waits for one, in order
	shares  *shareBook // fair limits; nil: nobody has taken
	quotaState
}

// bucketState is the level of a bucket at an instant. A bucket that was never
// taken from, or is full again by its own parameters, counts as absent: the
// next hold finds it full. So it makes no difference when its state is dropped.
type bucketState struct {
	params    quota.Bucket // of the last Reserve that took from it: the newest policy known
	level     quota.Amount
	remainder int64
	at        int64
	fullAt    int64 // from when on it counts as absent; 0 when it was never taken from
}

// levelFor is the level now, as parameters p see it.
func (b *bucketState) levelFor(p *quota.Bucket, now int64) (level quota.Amount, remainder int64) {
	if now >= b.fullAt {
		return p.Capacity, 0
	}
	remainder = b.remainder
	if b.params.PerMicros != p.PerMicros {
		remainder = 0 // counted in other fractions; dropping it favours nobody
	}
	return p.Advance(b.level, remainder, now-b.at)
}

// put stores what levelFor returned, changed or not.
func (b *bucketState) put(p *quota.Bucket, level quota.Amount, remainder, now int64) {
	b.params, b.level, b.remainder = *p, level, remainder
	b.at = max(b.at, now) // where the clock stepped back, nothing is earned twice
	wait := p.MicrosUntil(level, remainder, p.Capacity)
	if wait > math.MaxInt64-b.at {
		b.fullAt = math.MaxInt64
	} else {
		b.fullAt = b.at + wait
	}
}

// correct charges the bucket with the difference, or gives back when it is
// negative, by the newest parameters known; those of the hold count only when
// there is no state.
func (b *bucketState) correct(p *quota.Bucket, difference, booked quota.Amount, now int64) {
	if now < b.fullAt {
		params := b.params
		p = &params
	}
	level, remainder := b.levelFor(p, now)
	if difference > 0 {
		level = p.Take(level, difference)
	} else {
		level, remainder = p.GiveBeside(level, remainder, -difference, booked)
	}
	b.put(p, level, remainder, now)
}

// lapsed is the place of a hold that has left its counter's slots because its lease
// was over. Where the clock steps back the lease may be renewed all the same.
const lapsed = -2

// taken counts the slots whose lease has not ended, and returns the earliest
// end among them (0 for none). Leases that have ended leave the heap: they are
// free for good, whenever their reservations are reclaimed.
func (c *counter) taken(now int64) (n int, earliest int64) {
	for len(c.slots) > 0 && c.slots[0].record.expires <= now {
		first := c.slots[0]
		c.slots.remove(first)
		first.slot = lapsed
	}
	if len(c.slots) > 0 {
		earliest = c.slots[0].record.expires
	}
	return len(c.slots), earliest
}

// quotaState is one period of a quota.
type quotaState struct {
	used        quota.Amount // as posted in the ledger
	version     int64        // of used
	incarnation int64        // in which it was seeded; 0 for never
	ticket      int64        // that a Seed must show; 0 for none
	ticketOf    int64        // incarnation that gave the ticket
	held        quota.Amount
	unposted    quota.Amount
	end         int64 // of the period
	touched     int64 // when a call last met it
}

// quotaOver says that the period is over and nothing in it is open.
func (q *quotaState) quotaOver(now int64) bool {
	return now >= q.end && q.held == 0 && q.unposted == 0
}

// silentFrom is the instant from which on the counter says nothing, unless it
// is touched again.
//
// A quota's counter in which nothing is open says nothing that the ledger does
// not say too: after quotaIdle it goes, and is seeded again when it is needed.
func (c *counter) silentFrom(quotaIdle int64) int64 {
	switch {
	case c.key.kind == kindRefusals:
		return c.refusalsUntil()
	case c.key.kind == quota.KindBucket:
		return max(c.fullAt, c.start, c.shareEnd())
	case c.key.kind.IsLevel():
		return max(c.arrival, c.start, c.shareEnd())
	case c.key.kind.IsWindow():
		if c.counted == nil {
			return c.start
		}
		w := quota.Window{Kind: c.key.kind, Length: c.counted.Length, Calendar: c.counted.Calendar}
		return max(w.EmptyAt(*c.counted), c.start)
	case c.key.kind == quota.KindSlots && len(c.slots) == 0:
		return c.placesEnd()
	case c.key.kind == quota.KindQuota && c.held == 0 && c.unposted == 0:
		return min(c.end, later(c.touched, quotaIdle))
	}
	return math.MaxInt64
}

// look is what a counter shows to one hold at one instant.
type look struct {
	counter   *counter // nil when there is none
	at        int64    // of a limit with a rate: the instant that it shows, now or a start that is ahead
	remaining quota.Amount
	remainder int64 // bucket
	risk      quota.Amount
	arrival   int64         // GCRA, queue: as the counter's
	counted   quota.Counted // windows: as of now
	earliest  int64         // slots: first lease end; 0 for none
	ahead     quota.Amount  // slots: callers that wait and come first
	placeEnds int64         // slots: first end of a place in line; 0 for none
	refused   bool          // slots: they are all taken, or for others
	seeded    bool
	isAhead   bool  // fair limits: the account is ahead of its share
	share     int64 // likewise: until when it has had its share; 0: not ahead of now
	sharing   int   // likewise: how many accounts are ahead of now
	fund      *hold // of the parent, where it pays; nil: the limit is asked

	bannedUntil int64 // as Level.BannedUntil; 0 for none
}

// look reads a counter, which may be nil, and changes nothing that shows.
func (s *Store) look(c *counter, h *reservation.Hold, now int64) look {
	l := look{counter: c, at: now, seeded: true}
	if c != nil {
		l.at = max(now, c.start)
	}
	switch h.Kind {
	case quota.KindBucket:
		l.remaining = h.Bucket.Capacity
		if c != nil {
			l.remaining, l.remainder = c.levelFor(&h.Bucket, l.at)
			l.risk = c.risk
		}
	case quota.KindGCRA, quota.KindLeakyQueue:
		if c != nil {
			l.arrival = c.arrival
		}
		l.remaining = quota.GCRA(h.Bucket).Remaining(l.arrival, l.at)
	case quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
		if c != nil && c.counted != nil {
			l.counted = h.Window.Advance(*c.counted, l.at)
		}
		l.remaining = h.Window.Remaining(l.counted, l.at)
	case quota.KindSlots:
		l.remaining = h.Max
		if c != nil {
			var n int
			n, l.earliest = c.taken(now)
			l.remaining -= quota.Amount(n)
		}
	case quota.KindQuota:
		l.seeded = c != nil && c.incarnation == s.incarnation && !c.quotaOver(now)
		if l.seeded {
			l.remaining = h.Max - c.used - c.held - c.unposted
		}
	}
	return l
}

// level shows the look as the contract does.
func (l *look) level(h *reservation.Hold, now int64) reservation.Level {
	shown := reservation.Level{Remaining: l.left(now), Seeded: l.seeded}
	if l.bannedUntil != 0 {
		shown.BannedUntil = at(l.bannedUntil)
	}
	if h.Kind.HasRate() && l.at > now {
		shown.ResetsAt = at(l.at)
	}
	l.showShare(&shown, h, now)
	switch h.Kind {
	case quota.KindBucket:
		shown.Risk = l.risk
		if wait := h.Bucket.MicrosUntil(l.remaining, l.remainder, h.Bucket.Capacity); wait > 0 {
			shown.ResetsAt = at(later(l.refillsFrom(), wait))
		}
	case quota.KindGCRA, quota.KindLeakyQueue:
		if l.arrival > l.at {
			shown.ResetsAt = at(l.arrival)
		}
	case quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
		if ends := h.Window.EmptyAt(l.counted); ends > l.at || ends != 0 && l.at <= now {
			shown.ResetsAt = at(ends)
		}
	case quota.KindSlots:
		shown.Held = h.Max - l.remaining
		if l.earliest != 0 {
			shown.ResetsAt = at(l.earliest)
		}
	case quota.KindQuota:
		shown.ResetsAt = at(h.Period.End.UnixMicro())
		if l.counter != nil {
			shown.Held, shown.Unposted = l.counter.held, l.counter.unposted
			if l.seeded {
				shown.Used, shown.Version = l.counter.used, l.counter.version
			}
		}
	}
	return shown
}

// unfit says why hold i of a Reserve does not fit, with a Reason of 0 when it
// does, whatever is banned. With an Output it is that of the least tokens.
func (l *look) unfit(i int, q *reservation.ReserveRequest, now, until int64) reservation.Refusal {
	h := &q.Holds[i]
	asked, want, soonest := h.Amount, h.Amount, time.Duration(0)
	fits := asked == 0
	switch {
	case l.fund != nil:
		fits = fits || asked <= l.fund.left()
	case h.Kind.HasRate():
		fits = fits || l.firstFor(h, asked+l.keep(h), now) <= until // three amounts of 53 bits
	default:
		fits = fits || asked <= l.room(now)-h.Keep
	}
	if q.Output != nil {
		_, fits = q.Output.Held(i, h, q.Output.Least, l.roomOf(h, now), l.risk)
		asked, want, soonest = q.Output.Refused(i, h, l.risk)
	}
	if fits {
		return reservation.Refusal{}
	}
	r := reservation.Refusal{Hold: i, Asked: asked, Remaining: l.room(now)}
	ahead := l.isAhead && l.fund == nil
	if l.fund == nil {
		want += h.Keep
	}
	if ahead {
		r.Sharing = l.sharing
	}
	switch {
	case l.fund != nil:
		r.Reason = reservation.EnvelopeExhausted
	case want > h.Capacity():
		r.Reason = reservation.ExceedsCapacity
	case h.Kind.HasRate():
		r.Reason = reservation.RateLimited
		retry := l.retryFor(h, want)
		if ahead {
			retry = l.retryAhead(h, want, retry)
		}
		r.RetryAt = at(max(retry, later(now, soonest.Microseconds())))
	case h.Kind == quota.KindSlots:
		r.Reason = reservation.ConcurrencyLimited
		r.RetryAt = at(l.earliest)
		if l.earliest == 0 {
			r.RetryAt = at(l.placeEnds)
		}
	default:
		r.Reason = reservation.QuotaExhausted
		r.RetryAt = at(h.Period.End.UnixMicro())
	}
	return r
}

// take makes the look show what the hold leaves, without touching the counter.
func (l *look) take(h *reservation.Hold, expires int64) {
	l.takeShare(h)
	switch h.Kind {
	case quota.KindBucket:
		l.remaining = h.Bucket.Take(l.remaining, h.Amount)
	case quota.KindGCRA, quota.KindLeakyQueue:
		// A queue's arrival is not before the start any more.
		l.arrival = quota.GCRA(h.Bucket).Move(l.arrival, l.at, 0, h.Amount)
		l.remaining = quota.GCRA(h.Bucket).Remaining(l.arrival, l.at)
	case quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
		l.counted, _ = h.Window.Take(l.counted, h.Amount, l.at)
		l.remaining = h.Window.Remaining(l.counted, l.at)
	case quota.KindSlots:
		l.remaining -= h.Amount
		if l.earliest == 0 || expires < l.earliest {
			l.earliest = expires
		}
	case quota.KindQuota:
		l.remaining -= h.Amount
	}
}
