package storetest

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// told remembers what each hold used so far: the most that was told.
func (r *modelRecord) told(used []quota.Amount) {
	for i, amount := range used {
		if h := &r.holds[i]; h.Kind != quota.KindSlots {
			h.used = max(h.used, amount)
		}
	}
}

// standing says where each hold of an open record stands.
func (m *Model) standing(r *modelRecord, peek []reservation.Hold) []reservation.Standing {
	var all []reservation.Standing
	for i, level := range m.levels(r.account, unshared(peek)) {
		h := &r.holds[i]
		st := reservation.Standing{Level: level, Granted: h.charged, Left: h.charged, Used: h.used}
		if h.Kind != quota.KindSlots {
			if r.over {
				st.Granted = h.Hold.Amount
			}
			if p := m.parentOf(r); p != nil && r.kin.Taken.Has(i) {
				if own := p.fund(h.Hold); own != nil {
					st.Funded, st.Room = true, max(0, own.charged-own.used)
				}
			}
		}
		all = append(all, st)
	}
	return all
}

// hasCompany says whether others of a record's tree, below the first one, are held.
func (m *Model) hasCompany(r *modelRecord) bool {
	top := m.top(r)
	for _, other := range m.records {
		if other != r && other.account == top.account && other.state == reservation.StateHeld && m.below(other, top) {
			return true
		}
	}
	return false
}

// standing compares what a Renew says of the holds.
func (d *differences) standing(q reservation.RenewRequest, got, want reservation.RenewAnswer) {
	if len(q.Peek) == 0 {
		return
	}
	d.check(got.Envelope == want.Envelope, "envelope", got.Envelope, want.Envelope)
	d.check(got.Company == want.Company, "company", got.Company, want.Company)
	d.check(len(got.Standing) == len(q.Peek), "number of standings", len(got.Standing), len(q.Peek))
	if len(got.Standing) != len(want.Standing) {
		return
	}
	gotLevels, wantLevels := make([]reservation.Level, len(q.Peek)), make([]reservation.Level, len(q.Peek))
	for i := range want.Standing {
		g, w := got.Standing[i], want.Standing[i]
		gotLevels[i], wantLevels[i] = g.Level, w.Level
		g.Level, w.Level = reservation.Level{}, reservation.Level{}
		d.check(g == w, fmt.Sprintf("standing %d (%s)", i, q.Peek[i].Limit), fmt.Sprintf("%+v", g), fmt.Sprintf("%+v", w))
	}
	d.levels(want.Now, q.Peek, gotLevels, wantLevels)
}

// tellUsed reads the option used of a renew: LIMIT:AMOUNT,...
func (p *player) tellUsed(made *plan, st step, q *reservation.RenewRequest) error {
	word, stated := st.opts["used"]
	if !stated {
		return nil
	}
	q.Used = make([]quota.Amount, len(made.Holds))
	return eachAmount(word, func(name string, amount quota.Amount) error {
		i := slices.Index(made.names, name)
		if i < 0 {
			return fmt.Errorf("used: %q was not reserved", name)
		}
		q.Used[i] = amount
		return nil
	})
}

// standing names the facts of a renew's answer.
func (got facts) standing(made *plan, answer reservation.RenewAnswer) {
	if answer.Envelope {
		got["envelope"] = true
	}
	got["company"] = answer.Company
	for i, st := range answer.Standing {
		name := made.names[i]
		got[name+".granted"], got[name+".left"], got[name+".used_so_far"] = st.Granted, st.Left, st.Used
		if st.Funded {
			got[name+".room"] = st.Room
		}
	}
}

// used draws what each hold of a reservation used so far: less, the same, or more
// than was held, and at times nothing is told.
func (h *historyState) used(t *rapid.T, holds []reservation.Hold) []quota.Amount {
	if rapid.IntRange(0, 3).Draw(t, "told") == 0 {
		return nil
	}
	return h.actual(t, holds)
}
