package memstore

import (
	"bytes"
	"context"
	"fmt"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Restore implements reservation.Store. An engine in memory loses its data with
// the broker that knows the holds; it is here for those who use both engines
// alike.
func (s *Store) Restore(ctx context.Context, q reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
	if err := q.Validate(); err != nil {
		return 0, err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	a := s.accounts[q.Account]
	if a != nil {
		s.prepare(a, now)
		defer s.settle(a)
		if r := a.records[q.ID]; r != nil {
			if !r.forgotten(now) {
				return reservation.RestoreKnown, nil
			}
			s.forget(r, now)
		}
	}
	expires := q.ExpiresAt.UnixMicro()
	if expires <= now {
		return reservation.RestoreEnded, nil
	}
	if expires > now+reservation.MaxRestoredLease.Microseconds() {
		return 0, reservation.LeaseTooLong(q.ExpiresAt, at(now))
	}
	for i := range q.Holds {
		h := &q.Holds[i]
		if c := s.lookup(a, h); c != nil && (h.Kind == quota.KindQuota && c.held > quota.MaxAmount-h.Amount || c.risk > quota.MaxAmount-h.Risk) {
			return 0, fmt.Errorf("holds[%d]: %w: the counter holds more than %d together with it", i, quota.ErrOverflow, quota.MaxAmount)
		}
	}
	if a == nil {
		a = s.account(q.Account)
		defer s.settle(a)
	}
	r := s.newRecord(a, q.ID, len(q.Holds))
	r.state, r.ask, r.token = reservation.StateHeld, q.Body, bytes.Clone(q.Token)
	r.expires, r.retention = expires, q.Retention.Microseconds()
	if start := q.StartAt.UnixMicro(); start > now {
		r.start = start
	}
	if other := a.keys[q.Key]; q.Key != "" && (other == nil || !other.replays(now)) {
		r.takeKey(q.Key)
	}
	parent := a.records[q.Kin.Parent]
	if !q.Kin.InEnvelope() || !parent.isOpen(now) {
		parent = nil
	} else {
		r.bound(parent)
		parent.adoptable()
	}
	var taken reservation.HoldSet
	for i := range q.Holds {
		h := &q.Holds[i]
		held := s.bind(r, i, h, s.lookup(a, h), now)
		if l := (look{counter: held.counter}); q.Kin.Taken.Has(i) {
			if l.fundBy(parent, h, true); l.fund != nil {
				held.receive(l.fund, h.Amount)
				taken = taken.With(i)
				continue
			}
		}
		held.take(h.Risk)
		if h.Amount == 0 {
			continue
		}
		if h.Kind.HasRate() && r.start > 0 {
			held.at = r.start
			held.counter.giveStart(r.start, now, 0)
		}
		switch h.Kind {
		default:
			held.correct(h.Amount, now)
		case quota.KindLeakyQueue:
			held.charged = h.Amount
			held.counter.arrival = quota.Queue(h.Bucket).Take(held.counter.arrival, max(now, r.start), h.Amount)
		case quota.KindSlots:
			held.counter.slots.push(held)
		case quota.KindQuota:
			held.charged, held.held = h.Amount, h.Amount
			held.counter.held += h.Amount
		}
	}
	if parent != nil {
		s.join(r, parent, taken)
	}
	s.move(r, isOpen, r.expires)
	return reservation.Restored, nil
}
