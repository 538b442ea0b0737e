package memstore

import (
	"slices"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// kin is what a record knows of its tree: see [reservation.Kin].
type kin struct {
	reservation.Kin
	root    reservation.ID   // the first of the tree; the zero ID: this one
	depth   int              // generations above
	granted []quota.Amount   // of a parent: what each hold was granted; nil without children
	open    []reservation.ID // of the first: all that is open below, parents before children
}

// isOpen says that the record is held and its lease runs.
func (r *record) isOpen(now int64) bool {
	return r != nil && r.state == reservation.StateHeld && r.expires > now
}

// parentOf returns the open envelope of a record, or nil.
func (r *record) parentOf(now int64) *record {
	if r.kin == nil || !r.kin.InEnvelope() {
		return nil
	}
	if p := r.account.records[r.kin.Parent]; p.isOpen(now) {
		return p
	}
	return nil
}

// adoptable makes a record ready to have children.
func (r *record) adoptable() {
	if r.kin == nil {
		r.kin = &kin{}
	}
	if r.kin.granted != nil {
		return
	}
	r.kin.granted = make([]quota.Amount, len(r.holds))
	for i := range r.holds {
		h := &r.holds[i]
		r.kin.granted[i] = h.charged
		if h.kind == quota.KindSlots && (h.slot >= 0 || r.kin.Taken.Has(i)) {
			r.kin.granted[i] = 1
		}
	}
}

// fund returns the parent's hold that pays for one on a counter, or -1.
func (r *record) fund(c *counter) int {
	if c == nil {
		return -1
	}
	for i := range r.holds {
		h := &r.holds[i]
		switch {
		case h.counter != c:
		case r.kin != nil && r.kin.granted != nil:
			if r.kin.granted[i] > 0 {
				return i
			}
		case h.charged > 0 || h.slot >= 0 || h.kind == quota.KindSlots && r.kin != nil && r.kin.Taken.Has(i):
			return i
		}
	}
	return -1
}

// left is what the envelope has left of a hold.
func (h *hold) left() quota.Amount {
	if h.kind == quota.KindSlots {
		return 1 // its slot covers the children
	}
	return h.charged
}

// hand moves an amount from the envelope's hold to a child's: back when it is
// negative.
func (h *hold) hand(amount quota.Amount) {
	if h.kind == quota.KindSlots {
		return
	}
	h.charged -= amount
	if h.kind == quota.KindQuota {
		h.held -= amount
		h.counter.held -= amount
	}
}

// paid is what the envelope pays where hold i comes to cost after instead of before:
// negative when it gets back.
func (r *record) paid(h *hold, before, after quota.Amount, now int64) quota.Amount {
	p := r.parentOf(now)
	if p == nil || before == after || h.kind == quota.KindSlots {
		return 0
	}
	i := slices.IndexFunc(r.holds, func(own hold) bool { return own.counter == h.counter })
	if i < 0 || !r.kin.Taken.Has(i) {
		return 0
	}
	p.adoptable()
	k := p.fund(h.counter)
	if k < 0 {
		return 0
	}
	part := min(after-before, p.holds[k].charged)
	part = max(part, p.holds[k].charged-p.kin.granted[k])
	p.holds[k].hand(part)
	return part
}

// quotaCost is what a quota's hold has of its counter, be it posted or not.
func (r *record) quotaCost(h *hold) quota.Amount {
	if r.state == reservation.StateHeld || r.state == reservation.StateExpired && !r.confirmed {
		return h.held + h.unposted
	}
	return h.charged
}

// join puts a record that is open into the tree of its parent.
func (s *Store) join(r, parent *record, taken reservation.HoldSet) {
	parent.adoptable()
	r.kin = &kin{Kin: reservation.Kin{Parent: parent.id, Taken: taken}, root: parent.kin.root, depth: parent.kin.depth + 1}
	if r.kin.root == (reservation.ID{}) {
		r.kin.root = parent.id
	}
	if root := r.account.records[r.kin.root]; root != nil && root.kin != nil {
		root.kin.open = append(root.kin.open, r.id)
	}
}

// bound ends the lease with the parent's at the latest. What the record is
// remembered for grows by what its lease lost.
func (r *record) bound(parent *record) {
	if cut := r.expires - parent.expires; cut > 0 {
		r.expires, r.retention = parent.expires, r.retention+cut
	}
}

// isFull says whether the parent's tree takes no child more.
func (s *Store) isFull(parent *record) bool {
	if parent.kin == nil {
		return false
	}
	if parent.kin.depth >= reservation.MaxTreeDepth {
		return true
	}
	root := parent
	if parent.kin.root != (reservation.ID{}) {
		root = parent.account.records[parent.kin.root]
	}
	return root != nil && root.kin != nil && len(root.kin.open) >= reservation.MaxTreeOpen
}

// depart takes a held record, which is about to end, out of its tree, and ends the
// leases of all that is open below it.
func (s *Store) depart(r *record, now int64) {
	if r.kin == nil || r.state != reservation.StateHeld {
		return
	}
	root := r
	if r.kin.root != (reservation.ID{}) {
		root = r.account.records[r.kin.root]
		if root == nil || root.kin == nil {
			return
		}
		if i := slices.Index(root.kin.open, r.id); i >= 0 {
			root.kin.open = slices.Delete(root.kin.open, i, i+1)
		}
	}
	if r.expires <= now {
		return
	}
	below := map[reservation.ID]bool{r.id: true}
	for _, id := range root.kin.open {
		c := r.account.records[id]
		if c == nil || !below[c.kin.Parent] {
			continue
		}
		below[id] = true
		if !c.isOpen(now) {
			continue
		}
		c.retention += c.expires - now
		c.expires, c.due = now, now
		c.account.open.fix(c.index)
		for i := range c.holds {
			if h := &c.holds[i]; h.slot >= 0 {
				h.counter.slots.up(h.slot)
			}
		}
	}
}

// renewable is how far a lease may go: to its parent's end at the latest.
func (r *record) renewable(now, to int64) int64 {
	if r.kin == nil || !r.kin.InEnvelope() {
		return to
	}
	switch p := r.account.records[r.kin.Parent]; {
	case p == nil:
		return to // lost: as without a parent
	case p.state != reservation.StateHeld:
		return now
	default:
		return min(to, p.expires)
	}
}

// fundBy finds the hold of a parent, which may be nil, that pays for one.
func (l *look) fundBy(parent *record, h *reservation.Hold, spill bool) {
	if parent == nil || h.Shadow {
		return
	}
	if k := parent.fund(l.counter); k >= 0 && !(spill && parent.holds[k].left() < h.Amount) {
		l.fund = &parent.holds[k]
	}
}

// room is what a call could take now: of the parent where it pays, else of the limit.
func (l *look) room(now int64) quota.Amount {
	if l.fund != nil {
		return l.fund.left()
	}
	return behind(l.left(now), l.ahead)
}

// roomOf is what one that chooses could take of a hold's limit and leave what is kept.
// It does not wait for a queue.
func (l *look) roomOf(h *reservation.Hold, now int64) quota.Amount {
	room := l.room(now) - l.keep(h)
	if h.Kind == quota.KindLeakyQueue && !h.Shadow && l.fund == nil && l.arrival > now {
		return min(room, 0)
	}
	return room
}

// keep is what it must leave there: of the parent nothing, which took it before.
func (l *look) keep(h *reservation.Hold) quota.Amount {
	if l.fund != nil {
		return 0
	}
	if l.isAhead {
		return h.Keep + quota.FairShare(h.Bucket).Reserve()
	}
	return h.Keep
}

// receive gives a new hold what its parent's hands over. Windows count it under the
// instant of the parent's.
func (h *hold) receive(from *hold, amount quota.Amount) {
	h.at = from.at
	if h.kind == quota.KindSlots {
		return
	}
	from.hand(amount)
	h.charged = amount
	if h.kind == quota.KindQuota {
		h.held = amount
		h.counter.held += amount
	}
}

// withoutForecasts is the request with no forecast where a parent pays.
func withoutForecasts(q *reservation.ReserveRequest, looks []look) *reservation.ReserveRequest {
	if q.Parent == (reservation.ID{}) {
		return q
	}
	request, output := *q, *q.Output
	output.Slopes = slices.Clone(output.Slopes)
	for i := range looks {
		if looks[i].fund != nil {
			output.Slopes[i].Tolerance = 0
		}
	}
	request.Output = &output
	return &request
}
