package storetest

import (
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// The books of envelopes. A hold's Amount is what was granted, its taken what it has
// left. The counter carries both what is left and what was handed down, so it does not
// hear of anything that stays within an envelope.

// open says that a reservation is held and its lease runs.
func (r *bookRecord) open(now int64) bool {
	return r != nil && r.state == reservation.StateHeld && r.expires > now
}

// fund is the hold of an envelope that pays for a hold in it, or nil.
func (r *bookRecord) fund(h reservation.Hold) *bookHold {
	if r == nil {
		return nil
	}
	for i := range r.holds {
		if own := &r.holds[i]; own.Amount > 0 && own.SameCounter(&h) {
			return own
		}
	}
	return nil
}

// payer is what pays for hold i of a Reserve; nil where the limit is asked.
func (b *books) payer(q reservation.ReserveRequest, parent *bookRecord, i int) *bookHold {
	h := q.Holds[i]
	own := parent.fund(h)
	if own == nil || h.Shadow || h.Kind != quota.KindSlots && q.Spill.Has(i) && own.taken < h.Amount {
		return nil
	}
	return own
}

// hand gives a hold what it takes, under the instant of the envelope's own. A slot covers
// all that is in the envelope.
func (h *bookHold) hand(to *bookHold) {
	to.funded, to.at = true, h.at
	if h.Kind == quota.KindSlots {
		to.taken = 0
		return
	}
	h.taken -= to.taken
}

// join makes a reservation one in an envelope, whose lease bounds its own. It is
// remembered for as long as if it had had the lease that was asked.
func (r *bookRecord) join(parent *bookRecord) {
	r.parent, r.tree, parent.tree = parent, true, true
	if cut := r.expires - parent.expires; cut > 0 {
		r.expires, r.retain = parent.expires, r.retain+cut
	}
}

// paid is what an open envelope pays where a hold in it costs more by an amount: at most
// what it has left. It gets back, where that is negative, at most what it was granted.
func (b *books) paid(r *bookRecord, i int, by quota.Amount) quota.Amount {
	h := r.holds[i]
	if !r.parent.open(b.now()) || !h.funded || h.Kind == quota.KindSlots {
		return 0
	}
	r.parent.tree = true
	own := r.parent.fund(h.Hold)
	if own == nil {
		return 0
	}
	part := max(min(by, own.taken), own.taken-own.Amount)
	own.taken -= part
	return part
}

// endBelow ends the leases in an open envelope that is closed.
func (b *books) endBelow(top *bookRecord) {
	now := b.now()
	if !top.open(now) {
		return
	}
	for _, r := range b.records {
		for up := r.parent; up != nil; up = up.parent {
			if up == top && r.open(now) {
				r.retain, r.expires = r.retain+r.expires-now, now
			}
		}
	}
}
