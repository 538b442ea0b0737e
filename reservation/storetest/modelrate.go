package storetest

import (
	"slices"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// modelRate is the state of a GCRA or a window. Their arithmetic is that of package
// quota, whose tests hold it against the definitions; the model is about when which
// step is taken.
type modelRate struct {
	name    counterName
	kind    quota.Kind
	arrival int64
	counted quota.Counted
}

// rateOf returns the state of a limit, whole at first.
func (m *Model) rateOf(name counterName, kind quota.Kind) *modelRate {
	for _, s := range m.rates {
		if s.name == name && s.kind == kind {
			return s
		}
	}
	s := &modelRate{name: name, kind: kind}
	m.rates = append(m.rates, s)
	return s
}

func (m *Model) cloneRates() []*modelRate {
	var out []*modelRate
	for _, s := range m.rates {
		c := *s // logs are replaced, never changed in place
		c.counted.Log = slices.Clone(s.counted.Log)
		out = append(out, &c)
	}
	return out
}

// rateLevel is what a GCRA or a window shows.
func (m *Model) rateLevel(name counterName, h reservation.Hold) reservation.Level {
	s, at := m.rateOf(name, h.Kind), m.at(name, h.Kind)
	l := reservation.Level{Seeded: true}
	if at > m.now() {
		l.ResetsAt = instant(at)
	}
	if h.Kind.IsLevel() {
		l.Remaining = m.takenNow(quota.GCRA(h.Bucket).Remaining(s.arrival, at), at)
		if s.arrival > at {
			l.ResetsAt = instant(s.arrival)
		}
		return l
	}
	counted := h.Window.Advance(s.counted, at)
	l.Remaining = m.takenNow(h.Window.Remaining(counted, at), at)
	if ends := h.Window.EmptyAt(counted); ends != 0 {
		l.ResetsAt = instant(ends)
	}
	return l
}

// rateWait is in how many microseconds so much fits, from when the counter counts.
func (m *Model) rateWait(name counterName, h reservation.Hold, want quota.Amount) int64 {
	s, now := m.rateOf(name, h.Kind), m.at(name, h.Kind)
	if h.Kind.IsLevel() {
		return quota.GCRA(h.Bucket).MicrosUntil(s.arrival, now, want)
	}
	return h.Window.MicrosUntil(h.Window.Advance(s.counted, now), now, want)
}

// takeRate takes a hold's amount at a start and returns the instant under which it
// counts.
func (m *Model) takeRate(name counterName, h reservation.Hold, now int64) int64 {
	s := m.rateOf(name, h.Kind)
	switch h.Kind {
	case quota.KindLeakyQueue:
		at := max(s.arrival, now) // later than the start only of a shadow queue
		s.arrival = quota.Queue(h.Bucket).Take(s.arrival, at, h.Amount)
		return at
	case quota.KindGCRA:
		s.arrival = quota.GCRA(h.Bucket).Move(s.arrival, now, 0, h.Amount)
		return now
	}
	var at int64
	s.counted, at = h.Window.Take(s.counted, h.Amount, now)
	return at
}

// correctRate brings what a hold has charged from one amount to another.
func (m *Model) correctRate(name counterName, h *modelHold, start int64, from, to quota.Amount) {
	s, now := m.rateOf(name, h.Kind), m.at(name, h.Kind)
	switch h.Kind {
	case quota.KindLeakyQueue:
		s.arrival = quota.Queue(h.Bucket).Correct(s.arrival, h.at, now, from, to)
		return
	case quota.KindGCRA:
		g, before := quota.GCRA(h.Bucket), s.arrival
		booked := m.rebook(name, h.Kind, start, g.Cost(to)-g.Cost(from))
		if s.arrival = g.Move(before, now, from, to); to < from {
			s.arrival = g.Beside(before, s.arrival, now, booked)
		}
		return
	}
	s.counted = h.Window.Correct(s.counted, to-from, h.at, now)
}

// shiftRate is correctRate for a hold of a tree, which is moved in parts.
func (m *Model) shiftRate(name counterName, h *modelHold, start int64, difference quota.Amount) {
	s, now := m.rateOf(name, h.Kind), m.at(name, h.Kind)
	if difference == 0 {
		return
	}
	if h.Kind == quota.KindLeakyQueue {
		s.arrival = quota.Queue(h.Bucket).Shift(s.arrival, now, difference)
		return
	}
	if h.Kind == quota.KindGCRA {
		g, before := quota.GCRA(h.Bucket), s.arrival
		booked := m.rebook(name, h.Kind, start, g.Cost(difference)-g.Cost(-difference))
		if s.arrival = g.Shift(before, now, difference); difference < 0 {
			s.arrival = g.Beside(before, s.arrival, now, booked)
		}
		return
	}
	s.counted = h.Window.Correct(s.counted, difference, h.at, now)
}
