package memstore

import (
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// told remembers what each hold used so far. It never falls.
func (r *record) told(used []quota.Amount) {
	for i, amount := range used {
		if h := &r.holds[i]; h.kind != quota.KindSlots {
			h.used = max(h.used, amount)
		}
	}
}

// standing says where each hold of an open record stands.
func (s *Store) standing(r *record, peek []reservation.Hold, now int64) []reservation.Standing {
	if len(peek) == 0 {
		return nil
	}
	all := make([]reservation.Standing, len(peek))
	parent := r.parentOf(now)
	for i := range peek {
		h := &r.holds[i]
		l := s.look(h.counter, &peek[i], now)
		st := &all[i]
		*st = reservation.Standing{Level: l.level(&peek[i], now), Granted: h.charged, Left: h.charged, Used: h.used}
		if r.kin != nil && r.kin.granted != nil && h.kind != quota.KindSlots {
			st.Granted = r.kin.granted[i]
		}
		if parent == nil || !r.kin.Taken.Has(i) || h.kind == quota.KindSlots {
			continue
		}
		if k := parent.fund(h.counter); k >= 0 {
			own := &parent.holds[k]
			st.Funded, st.Room = true, max(0, own.charged-own.used)
		}
	}
	return all
}

// hasCompany says whether others of the record's tree, below the first one, are held.
func (r *record) hasCompany() bool {
	if r.kin == nil {
		return false
	}
	root, own := r, 0
	if r.kin.root != (reservation.ID{}) {
		root, own = r.account.records[r.kin.root], 1
	}
	return root != nil && root.kin != nil && len(root.kin.open) > own
}
