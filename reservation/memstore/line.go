package memstore

import (
	"context"
	"slices"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// waiting is a caller's place in a counter's line of those who wait for a slot.
type waiting struct {
	waiter reservation.ID
	class  quota.Amount // the line is in the order of the classes, then of arrival
	until  int64        // it stands before this instant
}

// standing returns the line without the places whose time has passed.
func (c *counter) standing(now int64) []waiting {
	c.line = slices.DeleteFunc(c.line, func(p waiting) bool { return p.until <= now })
	return c.line
}

// ahead counts those who stand before a waiter, for one without a place all who do
// not leave more than its hold; ends is when the first of all places ends, 0 in an
// empty line.
func (c *counter) ahead(waiter *reservation.Line, h *reservation.Hold, now int64) (n int, ends int64) {
	line := c.standing(now)
	n = behindClass(line, h.LineClass())
	for i, p := range line {
		if ends == 0 || p.until < ends {
			ends = p.until
		}
		if waiter != nil && p.waiter == waiter.Waiter {
			n = i
		}
	}
	return n, ends
}

// behindClass is where the line has the first who leaves more than a class.
func behindClass(line []waiting, class quota.Amount) int {
	for i, p := range line {
		if p.class > class {
			return i
		}
	}
	return len(line)
}

// join keeps the waiter's place, behind its class unless it has one, and returns how
// many stand before it. ok is false when the line is full.
func (c *counter) join(waiter *reservation.Line, h *reservation.Hold, now int64) (ahead int, ok bool) {
	until := later(now, waiter.Keep.Microseconds())
	for i := range c.standing(now) {
		if c.line[i].waiter == waiter.Waiter {
			c.line[i].until = until
			return i, true
		}
	}
	if len(c.line) >= reservation.MaxLine {
		return 0, false
	}
	ahead = behindClass(c.line, h.LineClass())
	c.line = slices.Insert(c.line, ahead, waiting{waiter.Waiter, h.LineClass(), until})
	return ahead, true
}

// leave gives a place up.
func (c *counter) leave(waiter reservation.ID) (had bool) {
	before := len(c.line)
	c.line = slices.DeleteFunc(c.line, func(p waiting) bool { return p.waiter == waiter })
	return len(c.line) < before
}

// placesEnd is when the last of the places ends, 0 for none.
func (c *counter) placesEnd() int64 {
	var last int64
	for _, p := range c.line {
		last = max(last, p.until)
	}
	return last
}

// standBehind notes who waits for the counter's slots and comes before the call.
func (l *look) standBehind(q *reservation.ReserveRequest, h *reservation.Hold, now int64) {
	if c := l.counter; c != nil && len(c.line) > 0 && q.Settle == nil && !h.Shadow && l.fund == nil {
		ahead, ends := c.ahead(q.Line, h, now)
		l.ahead, l.placeEnds = quota.Amount(ahead), ends
	}
}

// behind is what those who come first leave.
func behind(free, ahead quota.Amount) quota.Amount {
	if ahead == 0 || free <= 0 {
		return free
	}
	return max(0, free-ahead)
}

// waitInLine keeps a refused caller's place at each counter whose slots refuse it,
// gives its other places up, and returns the last that it keeps. Where more than
// slots refuses it, or a line is full, it keeps none.
func (s *Store) waitInLine(q *reservation.ReserveRequest, looks []look, onlySlots bool, now int64) int {
	a := s.account(q.Account)
	defer s.settle(a)
	last := 0
	for i := range q.Holds {
		if !onlySlots || !looks[i].refused {
			s.leaveLines(a, q.Holds[i:i+1], q.Line.Waiter, false, now)
			continue
		}
		c := s.counterFor(a, &q.Holds[i], now)
		ahead, ok := c.join(q.Line, &q.Holds[i], now)
		s.release(c, now)
		s.settle(c.space)
		if !ok {
			s.leaveLines(a, q.Holds, q.Line.Waiter, false, now)
			return 0
		}
		last = max(last, ahead+1)
	}
	return last
}

// leaveLines gives up a waiter's places, which helps those behind it unless it
// has its slots now.
func (s *Store) leaveLines(a *space, holds []reservation.Hold, waiter reservation.ID, granted bool, now int64) {
	for i := range holds {
		if !holds[i].Waits() {
			continue
		}
		if c := s.lookup(a, &holds[i]); c != nil && c.leave(waiter) {
			if !granted {
				c.wakeLine()
			}
			s.release(c, now)
			s.settle(c.space)
		}
	}
}

// Leave implements reservation.Store.
func (s *Store) Leave(ctx context.Context, r reservation.LeaveRequest) error {
	if err := r.Validate(); err != nil {
		return err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.leaveLines(s.accounts[r.Account], r.Holds, r.Waiter, false, now)
	return nil
}

// watchedLine names a counter of slots to its watchers.
type watchedLine struct {
	space  string
	isPool bool
	limit  string
	scope  string
}

// watches are who is told of slots that were freed, under the engine's lock.
type watches map[watchedLine]map[*func()]struct{}

// Watch implements reservation.Store.
func (s *Store) Watch(account string, slots reservation.Counter, wake func()) (stop func()) {
	key := watchedLine{space: account, limit: slots.Limit, scope: slots.Scope}
	if slots.Pool != "" {
		key.space, key.isPool = slots.Pool, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[key] == nil {
		s.watches[key] = map[*func()]struct{}{}
	}
	s.watches[key][&wake] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches[key], &wake)
		if len(s.watches[key]) == 0 {
			delete(s.watches, key)
		}
	}
}

// wakeLine tells who watches the counter, if anybody stands in line.
func (c *counter) wakeLine() {
	if len(c.line) == 0 || c.key.kind != quota.KindSlots {
		return
	}
	for wake := range c.space.watches[watchedLine{c.space.name, c.space.isPool, c.key.limit, c.key.scope}] {
		(*wake)()
	}
}
