package storetest

import (
	"context"
	"fmt"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Restore follows the contract: what was granted before is held again.
func (m *Model) Restore(ctx context.Context, q reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
	now := m.now()
	m.reclaim(q.Account, reservation.ReclaimBatch)
	m.dropPastPeriods()
	expires := q.ExpiresAt.UnixMicro()
	switch {
	case m.find(q.Account, q.ID) != nil:
		return reservation.RestoreKnown, nil
	case expires <= now:
		return reservation.RestoreEnded, nil
	case expires-now > reservation.MaxRestoredLease.Microseconds():
		return 0, reservation.LeaseTooLong(q.ExpiresAt, instant(now))
	}
	for i, h := range q.Holds {
		if h.Kind == quota.KindBucket && m.risks(nameOf(q.Account, h.Counter)) > quota.MaxAmount-h.Risk {
			return 0, fmt.Errorf("holds[%d]: %w", i, quota.ErrOverflow)
		}
		if h.Kind != quota.KindQuota {
			continue
		}
		if held, _ := m.sums(nameOf(q.Account, h.Counter), h.Period.Key); held > quota.MaxAmount-h.Amount {
			return 0, fmt.Errorf("holds[%d]: %w", i, quota.ErrOverflow)
		}
	}
	r := &modelRecord{
		account: q.Account, id: q.ID, key: q.Key, ask: q.Body, token: q.Token, retention: q.Retention.Microseconds(),
		expires: expires, state: reservation.StateHeld,
	}
	for _, other := range m.records {
		if other.account == q.Account && other.key == q.Key && now < other.expires+other.retention {
			r.key = ""
		}
	}
	parent := m.find(q.Account, q.Kin.Parent)
	if q.Kin.InEnvelope() && m.isOpen(parent) {
		r.kin.Parent, r.tree, parent.tree, parent.over = parent.id, true, true, true
		if cut := r.expires - parent.expires; cut > 0 {
			r.expires, r.retention = parent.expires, r.retention+cut
		}
	} else {
		parent = nil
	}
	m.records = append(m.records, r)
	if start := q.StartAt.UnixMicro(); start > now {
		r.start = start
	}
	for i, h := range q.Holds {
		r.holds = append(r.holds, modelHold{Hold: withoutRefusals(h), at: q.ID.Minted().UnixMicro()})
		if own := parent.fund(h); own != nil && q.Kin.Taken.Has(i) && own.left() >= h.Amount {
			own.hand(h.Amount)
			r.kin.Taken = r.kin.Taken.With(i)
			r.holds[i].at, r.holds[i].Risk = own.at, 0
			if h.Kind != quota.KindSlots {
				r.holds[i].charged = h.Amount
			}
			if h.Kind == quota.KindQuota {
				r.holds[i].held = h.Amount
			}
			continue
		}
		if h.Kind.HasRate() && h.Amount > 0 && r.start > 0 {
			r.holds[i].at = r.start
			m.giveStart(nameOf(q.Account, h.Counter), h.Kind, r.start, 0)
		}
		switch h.Kind {
		default:
			m.correct(r, i, h.Amount)
		case quota.KindQuota:
			r.holds[i].held, r.holds[i].charged = h.Amount, h.Amount
			if h.Amount > 0 {
				m.quotaOrNew(nameOf(q.Account, h.Counter), h.Period)
			}
		case quota.KindLeakyQueue:
			if h.Amount == 0 {
				break
			}
			s := m.rateOf(nameOf(q.Account, h.Counter), h.Kind)
			r.holds[i].charged = h.Amount
			s.arrival = quota.Queue(h.Bucket).Take(s.arrival, max(now, r.start), h.Amount)
		case quota.KindSlots:
			r.holds[i].held = h.Amount
		}
	}
	return reservation.Restored, nil
}
