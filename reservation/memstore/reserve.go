package memstore

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Reserve implements reservation.Store.
func (s *Store) Reserve(ctx context.Context, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
	var answer reservation.ReserveAnswer
	err := s.reserve(ctx, &q, &answer)
	return answer, err
}

// reserve is Reserve into an answer whose slices it uses again.
func (s *Store) reserve(ctx context.Context, q *reservation.ReserveRequest, answer *reservation.ReserveAnswer) error {
	if err := q.Validate(); err != nil {
		return err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	*answer = reservation.ReserveAnswer{Now: at(now), Levels: answer.Levels[:0]}
	a := s.accounts[q.Account]
	if a != nil {
		answer.Reclaimed = s.prepare(a, now)
		defer s.settle(a)
		if r := a.keys[q.Key]; r != nil && q.Key != "" && r.replays(now) {
			answer.Verdict = reservation.KeyReused
			if r.ask == q.Body {
				answer.Verdict, answer.Record = reservation.Replayed, r.show(now)
			}
			return nil
		}
		if r := a.records[q.ID]; r != nil {
			if !r.forgotten(now) {
				answer.Verdict = reservation.Closed
				return nil
			}
			s.forget(r, now)
		}
	}
	if stale(q, now) {
		answer.Verdict = reservation.Stale
		return nil
	}
	var parent *record
	if q.Parent != (reservation.ID{}) {
		if a != nil {
			parent = a.records[q.Parent]
		}
		if !parent.isOpen(now) || parent.start > now {
			answer.Verdict = reservation.ParentEnded
			return nil
		}
		if s.isFull(parent) {
			answer.Verdict = reservation.ParentFull
			return nil
		}
	}
	looks := s.looks[:len(q.Holds)]
	defer clear(looks)
	unseeded, banned := false, false
	for i := range q.Holds {
		h := &q.Holds[i]
		looks[i] = s.look(s.lookup(a, h), h, now)
		looks[i].shareOf(q.Account, h, now)
		looks[i].fundBy(parent, h, q.Spill.Has(i))
		looks[i].standBehind(q, h, now)
		looks[i].bannedUntil = s.bannedUntil(a, h, now)
		banned = banned || !h.Shadow && looks[i].bars(h, q)
		unseeded = unseeded || h.Amount > 0 && !looks[i].seeded
	}
	if unseeded {
		answer.Verdict = reservation.Unseeded
		s.giveTickets(q, answer, now)
		return nil
	}
	choice := q
	if q.Output != nil {
		q = withoutForecasts(q, looks)
		answer.Decided.Tokens = q.Output.Asked
		for i := range q.Holds {
			if q.Holds[i].Shadow {
				continue
			}
			answer.Decided.Tokens = min(answer.Decided.Tokens, q.Output.Most(i, &q.Holds[i], looks[i].roomOf(&q.Holds[i], now), looks[i].risk))
		}
		if answer.Decided.Tokens >= q.Output.Least && !banned {
			decided := *q
			decided.Holds = held(q, answer.Decided.Tokens, looks, now)
			for i := range decided.Holds {
				answer.Decided.Forecast = append(answer.Decided.Forecast, decided.Holds[i].Risk > 0)
			}
			decided.Output = nil
			q = &decided
		}
	}
	until, onlySlots := startUntil(q, looks, now), true
	for i := range q.Holds {
		if q.Holds[i].Kind == quota.KindSlots && q.Settle != nil || q.Holds[i].Shadow {
			continue
		}
		refusal := looks[i].refusal(i, q, now, until)
		looks[i].refused = refusal.Reason == reservation.ConcurrencyLimited
		onlySlots = onlySlots && (refusal.Reason == 0 || looks[i].refused)
		if refusal.Reason != 0 && (answer.Verdict != reservation.Refused || refusal.Stricter(answer.Refusal)) {
			answer.Verdict, answer.Refusal = reservation.Refused, refusal
		}
	}
	if answer.Verdict == reservation.Refused {
		answer.Decided = reservation.Decided{}
		for i := range q.Holds {
			answer.Levels = append(answer.Levels, looks[i].level(&q.Holds[i], now))
		}
		if q.Line != nil && !q.DryRun {
			answer.Place = s.waitInLine(q, looks, onlySlots, now)
		}
		if answer.Place == 0 && !banned && !q.DryRun && q.CountsRefusals() {
			s.countRefusal(q, looks, answer, until, now)
		}
		return nil
	}
	start := startOf(q, looks, now)
	if choice.Decides() {
		if a == nil && !q.DryRun && q.CountsRefusals() {
			a = s.account(q.Account)
			defer s.settle(a)
		}
		q = s.decide(a, choice, q, answer, looks, start, now)
	}
	passTo(q, looks, start)
	expires := start
	if q.Settle == nil {
		expires += q.Lease.Microseconds()
	}
	if parent != nil {
		expires = min(expires, parent.expires)
	}
	answer.Verdict, answer.StartAt, answer.ExpiresAt = reservation.Granted, at(start), at(expires)
	if !q.DryRun {
		if a == nil {
			a = s.account(q.Account)
			defer s.settle(a)
		}
		s.grant(a, q, parent, looks, start, expires, now)
	}
	for i := range q.Holds {
		h := &q.Holds[i]
		answer.Levels = append(answer.Levels, s.levelAfter(q, h, &looks[i], expires, now))
	}
	return nil
}

// decide leaves out the shadow holds that do not fit what is granted, and returns
// the request with the token of what was decided. choice is the request as asked,
// q with the holds for what is granted.
func (s *Store) decide(a *space, choice, q *reservation.ReserveRequest, answer *reservation.ReserveAnswer, looks []look, start, now int64) *reservation.ReserveRequest {
	decided := *q
	decided.Holds = slices.Clone(q.Holds)
	if answer.Decided.Forecast == nil {
		answer.Decided.Forecast = make([]bool, len(q.Holds))
	}
	granting := choice.Granting(answer.Decided)
	for i := range decided.Holds {
		h := &decided.Holds[i]
		if !h.Shadow || h.Kind == quota.KindSlots && q.Settle != nil {
			continue
		}
		until := start
		if h.Kind == quota.KindLeakyQueue {
			until = granting.QueueUntil(now)
		}
		if refusal := looks[i].refusal(i, granting, now, until); refusal.Reason != 0 {
			refusal = s.countMissed(a, granting, i, &looks[i], refusal, until, now)
			answer.Shadow = append(answer.Shadow, refusal)
			answer.Decided.Miss(i, len(q.Holds))
			h.Amount, h.Risk = 0, 0
		}
	}
	decided.Token = answer.Decided.AppendTo(q.Token)
	return &decided
}

// held returns the holds as they are taken for so many output tokens, which fit.
func held(q *reservation.ReserveRequest, tokens int64, looks []look, now int64) []reservation.Hold {
	holds := make([]reservation.Hold, len(q.Holds))
	for i := range q.Holds {
		holds[i] = q.Holds[i]
		taken, _ := q.Output.Held(i, &q.Holds[i], tokens, looks[i].roomOf(&q.Holds[i], now), looks[i].risk)
		holds[i].Amount, holds[i].Risk = taken.Amount, taken.Risk
	}
	return holds
}

// levelAfter is the level that the grant of q leaves, from how it was before.
func (s *Store) levelAfter(q *reservation.ReserveRequest, h *reservation.Hold, before *look, expires, now int64) reservation.Level {
	after := *before
	after.risk += h.Risk
	if h.Amount == 0 || h.Kind == quota.KindSlots && q.Settle != nil || before.fund != nil {
		return after.level(h, now)
	}
	after.take(h, expires)
	level := after.level(h, now)
	if q.DryRun && h.Kind == quota.KindQuota {
		// level read held and unposted from the counter, which nobody touched.
		if q.Settle != nil {
			level.Unposted += h.Amount
		} else {
			level.Held += h.Amount
		}
	}
	return level
}

// stale says that the id, or a period, does not belong to the present.
func stale(q *reservation.ReserveRequest, now int64) bool {
	skew := now - q.ID.Minted().UnixMicro()
	if skew > reservation.MintSkew.Microseconds() || skew < -reservation.MintSkew.Microseconds() {
		return true
	}
	for i := range q.Holds {
		if h := &q.Holds[i]; h.Kind == quota.KindQuota && (now < h.Period.Start.UnixMicro() || now >= h.Period.End.UnixMicro()) {
			return true
		}
	}
	return false
}

// maxTicket keeps tickets exact in engines that count in IEEE doubles.
const maxTicket = 1 << 52

// giveTickets answers a ticket for each quota that must be seeded first. A
// DryRun names those that stand and makes no new ones.
func (s *Store) giveTickets(q *reservation.ReserveRequest, answer *reservation.ReserveAnswer, now int64) {
	a := s.accounts[q.Account]
	for i := range q.Holds {
		h := &q.Holds[i]
		if h.Amount == 0 || s.looks[i].seeded {
			continue
		}
		ticket := reservation.Ticket{Hold: i}
		c := s.looks[i].counter
		if c != nil && c.ticket != 0 && c.ticketOf == s.incarnation && !c.quotaOver(now) {
			ticket.Ticket = c.ticket
		} else if !q.DryRun {
			if a == nil {
				a = s.account(q.Account)
			}
			c = s.counterFor(a, h, now)
			c.ticket, c.ticketOf = 1+rand.Int64N(maxTicket-1), s.incarnation
			ticket.Ticket = c.ticket
			s.release(c, now)
		}
		answer.Tickets = append(answer.Tickets, ticket)
	}
	if a != nil {
		s.settle(a)
	}
}

// grant takes every hold and writes the record.
func (s *Store) grant(a *space, q *reservation.ReserveRequest, parent *record, looks []look, start, expires, now int64) {
	r := s.newRecord(a, q.ID, len(q.Holds))
	r.state, r.ask, r.token = reservation.StateHeld, q.Body, bytes.Clone(q.Token)
	r.expires, r.retention = expires, q.Retention.Microseconds()
	if start > now {
		r.start = start
	}
	if q.Key != "" {
		r.takeKey(q.Key)
	}
	if parent != nil {
		r.expires = now + q.Lease.Microseconds()
		r.bound(parent)
		parent.adoptable()
	}
	var taken reservation.HoldSet
	for i := range q.Holds {
		h := &q.Holds[i]
		held := s.bind(r, i, h, looks[i].counter, now)
		looks[i].counter = held.counter
		held.take(h.Risk)
		held.at = max(start, looks[i].counted.Start)
		if fund := looks[i].fund; fund != nil {
			held.receive(fund, h.Amount)
			held.sharing = fund.sharing
			taken = taken.With(i)
			continue
		}
		if h.Amount == 0 {
			held.takeShare(h, &looks[i], now)
			continue
		}
		if h.Kind.HasRate() {
			var booked quota.Amount // of a GCRA: see correct
			if h.Kind == quota.KindBucket {
				booked = h.Amount
			}
			held.counter.giveStart(start, now, booked)
		}
		switch h.Kind {
		case quota.KindLeakyQueue:
			held.charged, held.at = h.Amount, looks[i].arrival // later than the start where it delays nobody
			held.counter.arrival = quota.Queue(h.Bucket).Take(looks[i].arrival, start, h.Amount)
		case quota.KindGCRA, quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
			// The counter's own length becomes the hold's with it.
			if h.Kind.IsWindow() {
				held.counter.count(looks[i].counted)
			}
			held.correct(h.Amount, now)
		case quota.KindBucket:
			held.charged = h.Amount
			level := h.Bucket.Take(looks[i].remaining, h.Amount)
			held.counter.put(&h.Bucket, level, looks[i].remainder, start)
		case quota.KindSlots:
			if q.Settle == nil {
				held.counter.slots.push(held)
			}
		case quota.KindQuota:
			held.charged = h.Amount
			if q.Settle == nil {
				held.held = h.Amount
				held.counter.held += h.Amount
			}
		}
		held.takeShare(h, &looks[i], now)
	}
	if parent != nil {
		s.join(r, parent, taken)
	}
	if q.Line != nil {
		s.leaveLines(a, q.Holds, q.Line.Waiter, true, now)
	}
	if q.Settle == nil {
		s.move(r, isOpen, expires)
		return
	}
	r.rank, r.state = ledger.RankRefunded, reservation.StateSettled
	r.body, r.outcome = q.Settle.Body, bytes.Clone(q.Settle.Outcome)
	s.await(r, now)
}
