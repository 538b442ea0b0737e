package storetest

import (
	"math"
	"slices"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// modelStart is the last start that a counter with a rate gave.
type modelStart struct {
	name counterName
	kind quota.Kind
	at   int64
	// booked is what those who were given it have: units of a bucket, microseconds of
	// a GCRA. It counts while this is the counter's last start.
	booked int64
}

// at is the instant as of which a counter with a rate counts: now, or the last start
// that it gave, while that is ahead.
func (m *Model) at(name counterName, kind quota.Kind) int64 {
	at := m.now()
	for _, s := range m.starts {
		if s.name == name && s.kind == kind {
			at = max(at, s.at)
		}
	}
	return at
}

// passStart forgets the starts of a counter that have passed, as it is changed: where
// the clock steps back, they are not ahead again.
func (m *Model) passStart(name counterName, kind quota.Kind) {
	m.starts = slices.DeleteFunc(slices.Clone(m.starts), func(s modelStart) bool {
		return s.name == name && s.kind == kind && s.at <= m.now()
	})
}

// giveStart notes a start. A queue gives starts by when it is empty alone.
func (m *Model) giveStart(name counterName, kind quota.Kind, at int64, booked int64) {
	if kind == quota.KindLeakyQueue || at <= m.now() {
		return
	}
	if last := m.lastStart(name, kind); last == nil || at > last.at {
		m.starts = append(m.starts, modelStart{name, kind, at, booked})
	} else if at == last.at {
		last.booked += booked
	}
}

// lastStart is the last start that a counter gave and that is ahead, or nil.
func (m *Model) lastStart(name counterName, kind quota.Kind) *modelStart {
	var last *modelStart
	for i := range m.starts {
		if s := &m.starts[i]; s.name == name && s.kind == kind && s.at > m.now() && (last == nil || s.at > last.at) {
			last = s
		}
	}
	return last
}

// rebook changes what is booked at a counter's last start by what one that was given
// the start, 0 for none, comes to have more, and returns it.
func (m *Model) rebook(name counterName, kind quota.Kind, start, difference int64) int64 {
	last := m.lastStart(name, kind)
	if last == nil {
		return 0
	}
	if start == last.at {
		last.booked = max(last.booked+difference, 0)
	}
	return last.booked
}

// refillsFrom is the instant from which on a bucket's level grows: where the clock
// stepped back, that of the level, which is ahead.
func (m *Model) refillsFrom(name counterName) int64 {
	from := m.at(name, quota.KindBucket)
	if b := m.bucket(name); b != nil {
		from = max(from, b.at)
	}
	return from
}

// giveBeside gives back to a bucket: what starts at the instant of its level, and what
// is left, come to the capacity at most.
func (m *Model) giveBeside(name counterName, p quota.Bucket, amount quota.Amount, booked int64) {
	level := m.levelAt(name, p, m.at(name, quota.KindBucket))
	most := whole(int64(p.Capacity) - booked)
	if level.Cmp(most) >= 0 {
		most = level
	}
	m.change(name, p, -amount)
	if b := m.bucket(name); b.level.Cmp(most) > 0 {
		b.level = most
	}
}

// takenNow is what remains now of what remains at an instant.
func (m *Model) takenNow(remaining quota.Amount, at int64) quota.Amount {
	if at > m.now() {
		return min(remaining, 0)
	}
	return remaining
}

// startFor is when a hold could start at the earliest, were it alone.
func (m *Model) startFor(account string, h reservation.Hold) int64 {
	name := nameOf(account, h.Counter)
	at, wait := m.at(name, h.Kind), int64(0)
	amount := h.Amount + h.Keep
	if amount > h.Capacity() {
		return math.MaxInt64
	}
	switch h.Kind {
	case quota.KindLeakyQueue:
		if amount > m.level(account, h).Remaining {
			return math.MaxInt64
		}
		return max(at, m.rateOf(name, h.Kind).arrival)
	case quota.KindBucket:
		if wait = microsUntil(m.levelAt(name, h.Bucket, at), h.Bucket, amount); wait != 0 {
			at = m.refillsFrom(name)
		}
	default:
		wait = m.rateWait(name, h, amount)
	}
	if wait < 0 || wait > math.MaxInt64-at {
		return math.MaxInt64
	}
	return at + wait
}

// startUntil is the latest instant at which a reservation may start.
func (m *Model) startUntil(q *reservation.ReserveRequest) int64 {
	until := m.now() + q.MaxWait.Microseconds()
	for _, h := range q.Holds {
		if q.MaxWait > 0 || !q.Waits() || h.Kind != quota.KindLeakyQueue || h.Shadow || h.Amount == 0 {
			continue
		}
		if start := m.startFor(q.Account, h); start < math.MaxInt64 {
			until = max(until, start)
		}
	}
	return until
}

// startOf is when a reservation starts of which every hold fits.
func (m *Model) startOf(q *reservation.ReserveRequest) int64 {
	start := m.now()
	for i, h := range q.Holds {
		if h.Kind.HasRate() && !h.Shadow && h.Amount > 0 && m.funds[i] == nil {
			start = max(start, m.startFor(q.Account, h))
		}
	}
	return start
}

// takeAt takes a hold with a rate at its start, and returns the instant under which
// it counts. The state is first that of now, by the parameters of the hold.
func (m *Model) takeAt(account string, h reservation.Hold, start int64) int64 {
	name := nameOf(account, h.Counter)
	if h.Amount == 0 {
		if h.Kind == quota.KindBucket || !h.Kind.IsWindow() {
			return start
		}
		return max(start, h.Window.Advance(m.rateOf(name, h.Kind).counted, m.at(name, h.Kind)).Start)
	}
	if h.Kind == quota.KindBucket {
		m.change(name, h.Bucket, 0)
		m.giveStart(name, h.Kind, start, int64(h.Amount))
		m.passStart(name, h.Kind)
		m.change(name, h.Bucket, h.Amount)
		return start
	}
	if s := m.rateOf(name, h.Kind); h.Kind.IsWindow() {
		s.counted = h.Window.Advance(s.counted, m.at(name, h.Kind))
	}
	m.giveStart(name, h.Kind, start, quota.GCRA(h.Bucket).Cost(h.Amount))
	m.passStart(name, h.Kind)
	return m.takeRate(name, h, start)
}

func (m *Model) cloneStarts() []modelStart { return slices.Clone(m.starts) }
