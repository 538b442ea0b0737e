package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// modelPlace is one place in the line of a counter of slots. The model keeps them in
// the order in which they were taken.
type modelPlace struct {
	name   counterName
	waiter reservation.ID
	keep   quota.Amount // what the waiter leaves of the limit to others
	until  int64
}

// lineOf returns the places that stand, in order: who leaves less is first.
func (m *Model) lineOf(name counterName) []modelPlace {
	var line []modelPlace
	for _, p := range m.line {
		if p.name == name && p.until > m.now() {
			line = append(line, p)
		}
	}
	slices.SortStableFunc(line, func(a, b modelPlace) int { return cmp.Compare(a.keep, b.keep) })
	return line
}

// before counts those who come before a caller: of one without a place, all who do not
// leave more than it does.
func (m *Model) before(account string, h reservation.Hold, waiter reservation.ID) (n int) {
	line := m.lineOf(nameOf(account, h.Counter))
	if at := slices.IndexFunc(line, func(p modelPlace) bool { return p.waiter == waiter }); at >= 0 {
		return at
	}
	for _, p := range line {
		if p.keep <= h.Keep {
			n++
		}
	}
	return n
}

// behindLine takes from a level of slots what is for those in line.
func (m *Model) behindLine(account string, h reservation.Hold, l *reservation.Level) {
	if m.asking == nil || m.asking.Settle != nil || h.Kind != quota.KindSlots || h.Shadow {
		return
	}
	waiter := reservation.ID{}
	if m.asking.Line != nil {
		waiter = m.asking.Line.Waiter
	}
	if n := m.before(account, h, waiter); n > 0 && l.Remaining > 0 {
		l.Remaining = max(0, l.Remaining-quota.Amount(n))
	}
	for _, p := range m.lineOf(nameOf(account, h.Counter)) {
		if end := instant(p.until); l.Held == 0 && (l.ResetsAt.IsZero() || end.Before(l.ResetsAt)) {
			l.ResetsAt = end
		}
	}
}

// wait keeps the places of a refused caller, at the counters whose slots refuse it, and
// returns the last of them.
func (m *Model) wait(q *reservation.ReserveRequest, refusing []reservation.Refusal) int {
	var here reservation.HoldSet
	for _, refusal := range refusing {
		if refusal.Reason != reservation.ConcurrencyLimited {
			m.leave(q.Account, q.Holds, q.Line.Waiter)
			return 0
		}
		here = here.With(refusal.Hold)
	}
	m.line = slices.DeleteFunc(m.line, func(p modelPlace) bool { return p.until <= m.now() })
	last, until := 0, m.now()+q.Line.Keep.Microseconds()
	for i, h := range q.Holds {
		name := nameOf(q.Account, h.Counter)
		at := slices.IndexFunc(m.line, func(p modelPlace) bool { return p.name == name && p.waiter == q.Line.Waiter })
		switch {
		case !here.Has(i):
			m.leave(q.Account, q.Holds[i:i+1], q.Line.Waiter)
			continue
		case at >= 0:
			m.line[at].until = until
		case len(m.lineOf(name)) >= reservation.MaxLine:
			m.leave(q.Account, q.Holds, q.Line.Waiter)
			return 0
		default:
			m.line = append(m.line, modelPlace{name, q.Line.Waiter, h.Keep, until})
		}
		last = max(last, m.before(q.Account, h, q.Line.Waiter)+1)
	}
	return last
}

func (m *Model) leave(account string, holds []reservation.Hold, waiter reservation.ID) {
	for _, h := range holds {
		if h.Waits() {
			name := nameOf(account, h.Counter)
			m.line = slices.DeleteFunc(m.line, func(p modelPlace) bool { return p.name == name && p.waiter == waiter })
		}
	}
}

// Leave gives up places.
func (m *Model) Leave(ctx context.Context, r reservation.LeaveRequest) error {
	m.leave(r.Account, r.Holds, r.Waiter)
	return nil
}

// Watch tells nobody: who asks the model asks again.
func (m *Model) Watch(account string, slots reservation.Counter, wake func()) (stop func()) {
	return func() {}
}

// Leave puts a Leave to both.
func (l *lockstep) Leave(ctx context.Context, r reservation.LeaveRequest) error {
	if err := l.engine.Store.Leave(ctx, r); err != nil {
		return fmt.Errorf("Leave: %w", err)
	}
	return l.model.Leave(ctx, r)
}

// waiterOf is the id of a waiter of that name.
func waiterOf(name string) (id reservation.ID) {
	copy(id[:], name)
	return id
}

// drawLine has some callers of a history wait.
func (h *historyState) drawLine(t *rapid.T, q *reservation.ReserveRequest) {
	if !h.world.lines || q.Settle != nil || q.Output != nil || q.Parent != (reservation.ID{}) || rapid.IntRange(0, 3).Draw(t, "waits") == 3 {
		return
	}
	q.Line = &reservation.Line{
		Waiter: waiterOf(rapid.SampledFrom([]string{"w1", "w2", "w3", "w4"}).Draw(t, "waiter")),
		Keep:   rapid.SampledFrom([]time.Duration{2 * time.Second, time.Millisecond, time.Minute}).Draw(t, "keep"),
	}
}

// leaveAny gives up the places of one who asked.
func (h *historyState) leaveAny(t *rapid.T) {
	made, ok := h.any(t)
	if !ok || made.Line == nil {
		return
	}
	h.must(t, h.Leave(h.ctx, reservation.LeaveRequest{Account: made.Account, Holds: made.Holds, Waiter: made.Line.Waiter}))
}

// wait reads who keeps a place in line, and how long: WAITER:SPAN.
func (made *plan) wait(st step) error {
	word, stated := st.opts["line"]
	if !stated {
		return nil
	}
	name, span, _ := strings.Cut(word, ":")
	keep, err := parseSpan(span)
	if err != nil {
		return fmt.Errorf("line: %w", err)
	}
	made.Line = &reservation.Line{Waiter: waiterOf(name), Keep: keep}
	return nil
}

// leave gives up the places of a reservation's waiter.
func (p *player) leave(ctx context.Context, id string) error {
	made, err := p.plan(id)
	if err != nil {
		return err
	}
	return p.Leave(ctx, reservation.LeaveRequest{Account: made.Account, Holds: made.Holds, Waiter: made.Line.Waiter})
}
