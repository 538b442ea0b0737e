package storetest

import (
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Envelopes in the model. A hold's Amount is what was granted, its charged what it
// has left; who belongs to whom is found anew each time.

// isOpen says that the record is held and its lease runs.
func (m *Model) isOpen(r *modelRecord) bool {
	return r != nil && r.state == reservation.StateHeld && r.expires > m.now()
}

// parentOf returns the open envelope of a record, or nil.
func (m *Model) parentOf(r *modelRecord) *modelRecord {
	if !r.kin.InEnvelope() {
		return nil
	}
	if p := m.find(r.account, r.kin.Parent); m.isOpen(p) {
		return p
	}
	return nil
}

// fund returns the parent's hold on a counter, or nil.
func (r *modelRecord) fund(h reservation.Hold) *modelHold {
	if r == nil {
		return nil
	}
	for i := range r.holds {
		if own := &r.holds[i]; own.Hold.Amount > 0 && own.SameCounter(&h) {
			return own
		}
	}
	return nil
}

// left is what the parent has left for a child.
func (h *modelHold) left() quota.Amount {
	if h.Kind == quota.KindSlots {
		return 1 // its slot covers them
	}
	return h.charged
}

// hand moves an amount from the parent's hold to a child's: back when it is negative.
func (h *modelHold) hand(amount quota.Amount) {
	if h.Kind == quota.KindSlots {
		return
	}
	h.charged -= amount
	if h.Kind == quota.KindQuota {
		h.held -= amount
	}
}

// paid is what the parent pays where a child's hold comes to cost after instead of
// before: negative when it gets back.
func (m *Model) paid(r *modelRecord, i int, before, after quota.Amount) quota.Amount {
	p := m.parentOf(r)
	if p == nil || !r.kin.Taken.Has(i) || before == after || r.holds[i].Kind == quota.KindSlots {
		return 0
	}
	p.tree, p.over = true, true
	own := p.fund(r.holds[i].Hold)
	if own == nil {
		return 0
	}
	part := min(after-before, own.charged)
	part = max(part, own.charged-own.Hold.Amount)
	own.hand(part)
	return part
}

// quotaCost is what a record's quota hold has of its counter, be it posted or not.
func (r *modelRecord) quotaCost(i int) quota.Amount {
	if r.state == reservation.StateHeld || r.state == reservation.StateExpired && !r.confirmed {
		return r.holds[i].held + r.holds[i].unposted
	}
	return r.holds[i].charged
}

// below says whether a record is in the tree of another.
func (m *Model) below(r, top *modelRecord) bool {
	for r != nil && r.kin.InEnvelope() {
		if r.kin.Parent == top.id {
			return true
		}
		r = m.find(r.account, r.kin.Parent)
	}
	return false
}

// depth is how many generations are above a record.
func (m *Model) depth(r *modelRecord) int {
	n := 0
	for r != nil && r.kin.InEnvelope() {
		r = m.find(r.account, r.kin.Parent)
		n++
	}
	return n
}

// top is the first record of a record's tree, as far up as it is known.
func (m *Model) top(r *modelRecord) *modelRecord {
	for r.kin.InEnvelope() {
		next := m.find(r.account, r.kin.Parent)
		if next == nil {
			break
		}
		r = next
	}
	return r
}

// isFull says whether the parent's tree takes no child more.
func (m *Model) isFull(parent *modelRecord) bool {
	if m.depth(parent) >= reservation.MaxTreeDepth {
		return true
	}
	top := m.top(parent)
	open := 0
	for _, r := range m.records {
		if r.account == top.account && r.state == reservation.StateHeld && m.below(r, top) {
			open++
		}
	}
	return open >= reservation.MaxTreeOpen
}

// endBelow ends the leases of all that is open below a record that is closed.
func (m *Model) endBelow(top *modelRecord) {
	now := m.now()
	if !m.isOpen(top) {
		return
	}
	for _, r := range m.records {
		if r.account == top.account && m.isOpen(r) && m.below(r, top) {
			r.retention += r.expires - now
			r.expires = now
		}
	}
}

// envelope is what the parent of a Reserve has for each hold: nil where the limit
// is asked.
func (m *Model) envelope(parent *modelRecord, q *reservation.ReserveRequest) []*modelHold {
	funds := make([]*modelHold, len(q.Holds))
	for i, h := range q.Holds {
		if own := parent.fund(h); own != nil && !h.Shadow && !(q.Spill.Has(i) && own.left() < h.Amount) {
			funds[i] = own
		}
	}
	return funds
}

// exhausted says whether the envelope that pays for hold i refuses it.
func (m *Model) exhausted(i int, h reservation.Hold, own *modelHold) (reservation.Refusal, bool) {
	left := own.left()
	if h.Amount == 0 || h.Amount <= left {
		return reservation.Refusal{}, true
	}
	return reservation.Refusal{Hold: i, Reason: reservation.EnvelopeExhausted, Asked: h.Amount, Remaining: left}, false
}
