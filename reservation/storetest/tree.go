package storetest

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// setParent reads the options parent and spill of a Reserve.
func (p *player) setParent(made *plan, st step) error {
	if name, stated := st.opts["parent"]; stated {
		parent, err := p.plan(name)
		if err != nil {
			return err
		}
		made.Parent, made.parent = parent.ID, parent
	}
	if name, stated := st.opts["spill"]; stated {
		i := slices.Index(made.names, name)
		if i < 0 {
			return fmt.Errorf("spill: %q was not reserved", name)
		}
		made.Spill = made.Spill.With(i)
	}
	return nil
}

// kin is what the token of a reservation would say of its envelope.
func (made *plan) kin() reservation.Kin {
	if made.parent == nil {
		return reservation.Kin{}
	}
	return reservation.Kin{Parent: made.Parent, Taken: takenOf(made.parent.Holds, made.Holds)}
}

// takenOf names the holds that a parent with such holds pays.
func takenOf(parent, holds []reservation.Hold) reservation.HoldSet {
	var taken reservation.HoldSet
	for i := range holds {
		for j := range parent {
			if !holds[i].Shadow && parent[j].Amount > 0 && parent[j].SameCounter(&holds[i]) {
				taken = taken.With(i)
			}
		}
	}
	return taken
}

// chooseParent makes most reservations in one that was asked for before: often an
// open one, with holds on counters that it holds too.
func (h *historyState) chooseParent(t *rapid.T, q *reservation.ReserveRequest) {
	if q.Settle != nil || rapid.IntRange(0, 3).Draw(t, "in an envelope") == 0 {
		return
	}
	parent, ok := h.any(t)
	if !ok {
		return
	}
	q.Parent = parent.ID
	if rapid.IntRange(0, 9).Draw(t, "of another account") < 9 {
		q.Account = parent.Account
	}
	if q.Output == nil && rapid.Bool().Draw(t, "its counters") {
		q.Holds = slices.Clone(h.holdsOf(parent))
		for i := range q.Holds {
			hold := &q.Holds[i]
			hold.Risk = 0
			if hold.Kind != quota.KindSlots {
				hold.Amount = h.amount(t, hold.Amount)
			}
		}
	}
	q.Spill = reservation.HoldSet(rapid.Uint64Range(0, 1<<len(q.Holds)-1).Draw(t, "spill"))
}

// kinOf is what the token of a reservation would say of its envelope.
func (h *historyState) kinOf(made reservation.ReserveRequest) reservation.Kin {
	if made.Parent == (reservation.ID{}) {
		return reservation.Kin{}
	}
	kin := reservation.Kin{Parent: made.Parent}
	for _, parent := range h.made {
		if parent.ID == made.Parent {
			kin.Taken = takenOf(h.holdsOf(parent), h.holdsOf(made))
		}
	}
	return kin
}
