package memstore

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// young says that an unknown id must have been lost: it cannot have been
// closed and forgotten yet.
func young(id reservation.ID, lease, retention time.Duration, now int64) bool {
	return id.Minted().UnixMicro()+lease.Microseconds()+retention.Microseconds() > now
}

// Refund implements reservation.Store.
func (s *Store) Refund(ctx context.Context, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
	var answer reservation.RefundAnswer
	err := s.refund(ctx, &q, &answer)
	return answer, err
}

// refund is Refund into an answer whose slices it uses again.
func (s *Store) refund(ctx context.Context, q *reservation.RefundRequest, answer *reservation.RefundAnswer) error {
	if err := q.Validate(); err != nil {
		return err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	actual := answer.Record.Actual[:0]
	*answer = reservation.RefundAnswer{Now: at(now), Levels: answer.Levels[:0]}
	a := s.accounts[q.Account]
	var r *record
	if a != nil {
		answer.Reclaimed = s.prepare(a, now)
		defer s.settle(a)
		if r = a.records[q.ID]; r != nil && r.forgotten(now) {
			s.forget(r, now)
			r = nil
		}
	}
	switch {
	case r == nil && !young(q.ID, q.Lease, q.Retention, now):
		answer.Verdict = reservation.RefundForgotten
		return nil
	case r == nil && len(q.Holds) == 0:
		answer.Verdict = reservation.RefundUnknown
		return nil
	case r == nil && q.OnlyHeld && now >= q.ID.Minted().UnixMicro()+q.Lease.Microseconds():
		answer.Verdict = reservation.RefundEnded
		return nil
	case r != nil && r.state == reservation.StateSettled:
		answer.Verdict = reservation.RefundConflict
		if r.body == q.Body {
			answer.Verdict = reservation.RefundSame
		}
		answer.Record = r.show(now)
		return nil
	case r != nil && q.OnlyHeld && now >= r.expires:
		answer.Verdict, answer.Record = reservation.RefundEnded, r.show(now)
		return nil
	}
	if err := s.checkActual(a, r, q.Holds, q.Actual); err != nil {
		return err
	}
	if r == nil {
		if a == nil {
			a = s.account(q.Account)
			defer s.settle(a)
		}
		r = s.orphan(a, q.ID, q.Lease, q.Retention, q.Token, q.Holds, q.Kin, now)
	}
	if r.token == nil {
		r.token = bytes.Clone(q.Token) // dropped when the expiry was confirmed
	}
	r.late = now >= r.expires
	r.body, r.outcome = q.Body, bytes.Clone(q.Outcome)
	s.adopt(r, ledger.RankRefunded, q.Actual, now)
	s.await(r, now)
	answer.Verdict = reservation.RefundSettled
	answer.Record = r.showInto(actual, now)
	for i := range r.holds {
		answer.Levels = append(answer.Levels, s.levelOf(&r.holds[i], now))
	}
	return nil
}

// levelOf shows the counter of a record's hold.
func (s *Store) levelOf(h *hold, now int64) reservation.Level {
	as := reservation.Hold{Kind: h.kind, Bucket: h.bucket, Max: h.max, Period: quota.Period{End: at(h.end)}}
	if h.window != nil {
		as.Window = *h.window
	}
	l := s.look(h.counter, &as, now)
	return l.level(&as, now)
}

// orphan makes a record that was lost, with nothing held or charged.
func (s *Store) orphan(a *space, id reservation.ID, lease, retention time.Duration, token []byte, holds []reservation.Hold, of reservation.Kin, now int64) *record {
	r := s.newRecord(a, id, len(holds))
	r.token = bytes.Clone(token)
	if of.InEnvelope() {
		r.kin = &kin{Kin: of}
	}
	r.expires, r.retention = id.Minted().UnixMicro()+lease.Microseconds(), retention.Microseconds()
	for i := range holds {
		s.bind(r, i, &holds[i], s.lookup(a, &holds[i]), now)
	}
	return r
}

// maxSum bounds what one quota counter may hold in open and unposted amounts.
// Differences of such sums stay far from the ends of 64 bits.
const maxSum = quota.Amount(1) << 60

// checkActual refuses amounts that do not belong to the holds, or that a
// counter cannot add up. The record is nil when it will be made from the holds.
func (s *Store) checkActual(a *space, r *record, holds []reservation.Hold, actual []quota.Amount) error {
	n := len(holds)
	if r != nil {
		n = len(r.holds)
	}
	if len(actual) != n {
		return fmt.Errorf("actual: %d amounts are stated for %d holds; state one for each hold, in their order", len(actual), n)
	}
	for i := range actual {
		var c *counter
		if r != nil {
			c = r.holds[i].counter
		} else {
			c = s.lookup(a, &holds[i])
		}
		if c != nil && c.unposted > maxSum {
			return fmt.Errorf("actual[%d]: %w: the counter of %q has %d waiting for the ledger", i, quota.ErrOverflow, c.key.limit, c.unposted)
		}
	}
	return nil
}

// Renew implements reservation.Store.
func (s *Store) Renew(ctx context.Context, q reservation.RenewRequest) (reservation.RenewAnswer, error) {
	if err := q.Validate(); err != nil {
		return reservation.RenewAnswer{}, err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return reservation.RenewAnswer{}, err
	}
	defer s.mu.Unlock()
	answer := reservation.RenewAnswer{Now: at(now)}
	a := s.accounts[q.Account]
	if a == nil {
		return answer, nil
	}
	answer.Reclaimed = s.prepare(a, now)
	defer s.settle(a)
	r := a.records[q.ID]
	if r == nil || r.forgotten(now) {
		return answer, nil
	}
	answer.State = r.state
	if r.state == reservation.StateHeld {
		if now >= r.expires {
			answer.State = reservation.StateExpired // and a batch of others was reclaimed before it
		} else if err := q.Matches(len(r.holds)); err != nil {
			return reservation.RenewAnswer{}, err
		} else if to := r.renewable(now, now+q.Lease.Microseconds()); to > r.expires {
			r.expires, r.due = to, to
			a.open.fix(r.index)
			for i := range r.holds {
				switch h := &r.holds[i]; {
				case h.slot >= 0:
					h.counter.slots.down(h.slot)
				case h.slot == lapsed:
					h.counter.slots.push(h)
				}
			}
		}
	}
	if answer.State == reservation.StateHeld {
		r.told(q.Used)
		answer.Envelope, answer.Company = r.kin != nil && r.kin.granted != nil, r.hasCompany()
		answer.Standing = s.standing(r, q.Peek, now)
	}
	answer.ExpiresAt = at(r.expires)
	return answer, nil
}

// Confirm implements reservation.Store.
func (s *Store) Confirm(ctx context.Context, q reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
	if err := q.Validate(); err != nil {
		return 0, err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	a := s.accounts[q.Account]
	if a == nil {
		a = s.account(q.Account)
	}
	defer s.settle(a)
	s.prepare(a, now)
	for i := range q.Usage {
		s.push(a, &q.Usage[i], now)
	}
	r := a.records[q.ID]
	if r != nil && r.forgotten(now) {
		s.forget(r, now)
		r = nil
	}
	switch {
	case r == nil && !young(q.ID, q.Lease, q.Retention, now):
		return reservation.ConfirmOld, nil
	case r == nil && len(q.Holds) == 0:
		return reservation.ConfirmUnknown, nil
	case r != nil && (r.rank > q.Rank || r.rank == q.Rank && r.confirmed):
		return reservation.ConfirmStopped, nil
	}
	if err := s.checkActual(a, r, q.Holds, q.Actual); err != nil {
		return 0, err
	}
	if r == nil {
		r = s.orphan(a, q.ID, q.Lease, q.Retention, q.Token, q.Holds, q.Kin, now)
	}
	s.adopt(r, q.Rank, q.Actual, now)
	r.body, r.outcome = q.Body, bytes.Clone(q.Outcome)
	r.late, r.closedAt, r.confirmed = q.Late, q.ClosedAt.UnixMicro(), true
	if r.key == "" {
		r.token = nil // nobody can ask for it again
	}
	s.move(r, isKept, r.forgetAt())
	return reservation.ConfirmAdopted, nil
}

// push takes over a usage value that is newer than the known one. A counter
// that is not seeded stays unseeded, and remembers the version.
func (s *Store) push(a *space, u *reservation.CounterUsage, now int64) {
	h := reservation.Hold{Counter: u.Counter, Kind: quota.KindQuota, Period: u.Period}
	c := s.lookup(a, &h)
	if c == nil || c.quotaOver(now) {
		if now >= u.Period.End.UnixMicro() {
			return // a period that is over and settled
		}
		c = s.counterFor(a, &h, now)
	}
	if u.Version > c.version {
		c.used, c.version = u.Used, u.Version
	}
	s.release(c, now)
}

// Seed implements reservation.Store.
func (s *Store) Seed(ctx context.Context, q reservation.SeedRequest) (bool, error) {
	if err := q.Validate(); err != nil {
		return false, err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	a := s.accounts[q.Account]
	if a == nil {
		return false, nil // and so no ticket, since quotas have no pools
	}
	s.prepare(a, now)
	defer s.settle(a)
	h := reservation.Hold{Counter: q.Counter, Kind: quota.KindQuota, Period: q.Period}
	c := s.lookup(a, &h)
	if c == nil || c.quotaOver(now) || c.ticket == 0 || c.ticket != q.Ticket || c.ticketOf != s.incarnation || q.Version < c.version {
		return false, nil
	}
	c.used, c.version, c.incarnation, c.ticket = q.Used, q.Version, s.incarnation, 0
	return true, nil
}
