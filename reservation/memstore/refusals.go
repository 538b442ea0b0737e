package memstore

import (
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// kindRefusals is the kind of the counters that count another one's refusals: of the
// bucket state and the like nothing, the refusals as a sliding log, and when the ban
// ends in place of an arrival time. It is no kind of limit.
const kindRefusals quota.Kind = 255

// refusalsKey names the counter of a hold's refusals: one for all periods of a quota.
func refusalsKey(h *reservation.Hold) counterKey {
	return counterKey{kind: kindRefusals, limit: h.Limit, scope: h.Scope, period: string([]byte{byte(h.Kind)})}
}

// refusalsUntil is when the counter has forgotten its refusals and its ban.
func (c *counter) refusalsUntil() int64 {
	until := c.arrival
	if c.counted != nil {
		w := quota.Window{Kind: quota.KindSlidingLog, Length: c.counted.Length}
		until = max(until, w.EmptyAt(*c.counted))
	}
	return until
}

// bannedUntil is when the ban of a hold's counter ends, 0 for none now.
func (s *Store) bannedUntil(a *space, h *reservation.Hold, now int64) int64 {
	if h.Ban.Refusals == 0 || a == nil {
		return 0
	}
	if c := a.counters[refusalsKey(h)]; c != nil && c.arrival > now {
		return c.arrival
	}
	return 0
}

// bars says that a ban refuses the hold.
func (l *look) bars(h *reservation.Hold, q *reservation.ReserveRequest) bool {
	return l.bannedUntil != 0 && h.Amount > 0 && l.counts(h, q)
}

// counts says that the hold is asked of its limit, whose refusal then counts.
func (l *look) counts(h *reservation.Hold, q *reservation.ReserveRequest) bool {
	return l.fund == nil && (h.Kind != quota.KindSlots || q.Settle == nil)
}

// refusal says why hold i of a Reserve is refused, with a Reason of 0 when it is not.
// With an Output it is that of the least tokens.
func (l *look) refusal(i int, q *reservation.ReserveRequest, now, until int64) reservation.Refusal {
	r := l.unfit(i, q, now, until)
	h := &q.Holds[i]
	if !l.bars(h, q) {
		return r
	}
	if r.Reason == 0 {
		r = reservation.Refusal{Hold: i, Asked: h.Amount, Remaining: l.room(now)}
		if q.Output != nil {
			r.Asked, _, _ = q.Output.Refused(i, h, l.risk)
		}
	}
	return r.ByBan(at(l.bannedUntil))
}

// countRefusal counts that the request was refused, by no ban, and tells of it as of
// after that.
func (s *Store) countRefusal(q *reservation.ReserveRequest, looks []look, answer *reservation.ReserveAnswer, until, now int64) {
	if answer.Refusal.Reason.Hopeless() {
		return
	}
	a := s.account(q.Account)
	defer s.settle(a)
	var refused reservation.HoldSet
	for i := range q.Holds {
		h, l := &q.Holds[i], &looks[i]
		if h.Kind == quota.KindSlots && q.Settle != nil {
			continue
		}
		latest := until
		if h.Shadow && h.Kind == quota.KindLeakyQueue {
			latest = q.QueueUntil(now)
		}
		r := l.refusal(i, q, now, latest)
		if r.Reason != 0 && !h.Shadow {
			refused = refused.With(i)
		}
		if h.Amount > 0 && r.Reason != reservation.Banned && !r.Reason.Hopeless() {
			s.leaveTrace(a, q, i, l, r.Reason != 0, now)
			answer.Levels[i] = l.level(h, now)
		}
	}
	answer.Refusal = reservation.Refusal{}
	for i := range q.Holds {
		if !refused.Has(i) {
			continue
		}
		r := looks[i].refusal(i, q, now, until)
		if answer.Refusal.Reason == 0 || r.Stricter(answer.Refusal) {
			answer.Refusal = r
		}
	}
}

// countMissed does so for a shadow limit that would have refused what is granted. It
// returns the would-be refusal.
func (s *Store) countMissed(a *space, q *reservation.ReserveRequest, i int, l *look, r reservation.Refusal, start, now int64) reservation.Refusal {
	h := &q.Holds[i]
	if q.DryRun || r.Reason == reservation.Banned || r.Reason.Hopeless() || !h.CountRefusals && h.Ban.Refusals == 0 {
		return r
	}
	s.leaveTrace(a, q, i, l, true, now)
	return l.refusal(i, q, now, start)
}

// leaveTrace is what a refusal of the request leaves in hold i's limit, which may be
// one of those that refused.
func (s *Store) leaveTrace(a *space, q *reservation.ReserveRequest, i int, l *look, refused bool, now int64) {
	h := &q.Holds[i]
	if !l.counts(h, q) {
		return
	}
	changed := false
	if h.CountRefusals {
		if amount := min(q.Least(i), l.left(now)-h.Keep); amount > 0 {
			s.takeForGood(a, h, l, amount, now)
			changed = true
		}
	}
	if h.Ban.Refusals > 0 && refused {
		s.countBan(a, h, now)
		l.bannedUntil = s.bannedUntil(a, h, now)
	}
	if changed {
		banned := l.bannedUntil
		*l = s.look(s.lookup(a, h), h, now)
		l.bannedUntil = banned
	}
}

// takeForGood takes from a limit, of no reservation, an amount that is left now.
func (s *Store) takeForGood(a *space, h *reservation.Hold, l *look, amount quota.Amount, now int64) {
	c := s.counterFor(a, h, now)
	c.passStart(now)
	switch h.Kind {
	case quota.KindBucket:
		c.put(&h.Bucket, h.Bucket.Take(l.remaining, amount), l.remainder, now)
	case quota.KindGCRA:
		c.arrival = quota.GCRA(h.Bucket).Move(l.arrival, now, 0, amount)
	default:
		counted, _ := h.Window.Take(l.counted, amount, now)
		c.count(counted)
	}
	s.release(c, now)
}

// countBan counts a refusal by a limit with a ban.
func (s *Store) countBan(a *space, h *reservation.Hold, now int64) {
	c := s.counterOf(a, refusalsKey(h))
	var counted quota.Counted
	if c.counted != nil {
		counted = *c.counted
	}
	after, banned := h.Ban.Count(counted, now)
	if c.arrival = 0; banned {
		c.arrival, after = later(now, h.Ban.For.Microseconds()), quota.Counted{}
	}
	c.count(after)
	s.release(c, now)
}
