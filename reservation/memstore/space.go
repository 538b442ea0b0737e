package memstore

import (
	"math"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// space is an account or a pool: what its counters show and, for an account,
// its reservations.
type space struct {
	name    string
	isPool  bool
	watches watches // the engine's

	counters map[counterKey]*counter
	records  map[reservation.ID]*record
	keys     map[string]*record // idempotency keys

	open    recordHeap // held, by lease end
	waiting recordHeap // closed and not confirmed, by when Sweep hands them out
	kept    recordHeap // confirmed, by when they are forgotten
	idle    counterHeap

	dueAt int64 // not after next(); where it is in Store.due
	index int   // in Store.due
}

// Clean-up that a call does for its own account, besides reclaiming: enough
// to outrun what one call can leave behind.
const tidyBatch = 4

// account returns the account's space, which it makes when there is none.
func (s *Store) account(name string) *space {
	a := s.accounts[name]
	if a == nil {
		a = &space{name: name, watches: s.watches, index: -1, counters: map[counterKey]*counter{}, records: map[reservation.ID]*record{}}
		s.accounts[name] = a
	}
	return a
}

func (s *Store) pool(name string) *space {
	p := s.pools[name]
	if p == nil {
		p = &space{name: name, isPool: true, watches: s.watches, index: -1, counters: map[counterKey]*counter{}}
		s.pools[name] = p
	}
	return p
}

// next is the instant at which something of the space is due.
func (a *space) next() int64 {
	at := int64(math.MaxInt64)
	for _, h := range [...]recordHeap{a.open, a.waiting, a.kept} {
		if len(h) > 0 {
			at = min(at, h[0].due)
		}
	}
	if len(a.idle) > 0 {
		at = min(at, a.idle[0].idleAt)
	}
	return at
}

// settle puts the space where Sweep finds it, or drops it when it is empty.
// An entry that is too early is left: Sweep corrects it.
func (s *Store) settle(a *space) {
	if len(a.records) == 0 && len(a.counters) == 0 {
		if a.index >= 0 {
			s.due.remove(a)
		}
		if a.isPool {
			delete(s.pools, a.name)
		} else {
			delete(s.accounts, a.name)
		}
		return
	}
	next := a.next()
	switch {
	case a.index < 0:
		a.dueAt = next
		s.due.push(a)
	case next < a.dueAt:
		a.dueAt = next
		s.due.up(a.index)
	}
}

// prepare does what comes before a call's own work on an account: it ends up
// to ReclaimBatch leases, and forgets a little of what has had its time.
func (s *Store) prepare(a *space, now int64) (reclaimed int) {
	reclaimed = s.reclaim(a, now, reservation.ReclaimBatch)
	s.tidy(a, now, tidyBatch)
	return reclaimed
}

// reclaim ends up to most leases that have ended, in the order of their ends,
// and of ids among equals.
func (s *Store) reclaim(a *space, now int64, most int) int {
	n := 0
	for ; n < most && len(a.open) > 0 && a.open[0].due <= now; n++ {
		s.expire(a.open[0], now)
	}
	return n
}

// tidy forgets up to most records and most counters of the space that say
// nothing any more, and returns how many it looked at.
func (s *Store) tidy(a *space, now int64, most int) int {
	n := 0
	for ; n < most && len(a.kept) > 0 && a.kept[0].due <= now; n++ {
		s.forget(a.kept[0], now)
	}
	for k := 0; k < most && len(a.idle) > 0 && a.idle[0].idleAt <= now; k++ {
		c := a.idle[0]
		a.idle.remove(c)
		s.release(c, now)
		n++
	}
	return n
}

// spaceOf returns where a hold of the account is counted, nil if it is not
// there.
func (s *Store) spaceOf(a *space, c *reservation.Counter) *space {
	if c.Pool != "" {
		return s.pools[c.Pool]
	}
	return a
}

// lookup returns the counter of a hold, or nil.
func (s *Store) lookup(a *space, h *reservation.Hold) *counter {
	where := s.spaceOf(a, &h.Counter)
	if where == nil {
		return nil
	}
	return where.counters[keyOf(h)]
}

// counterFor returns the counter of a hold, which it makes when there is none.
func (s *Store) counterFor(a *space, h *reservation.Hold, now int64) *counter {
	where := a
	if h.Pool != "" {
		where = s.pool(h.Pool)
	}
	c := s.counterOf(where, keyOf(h))
	if h.Kind == quota.KindQuota {
		if c.quotaOver(now) {
			c.quotaState = quotaState{}
		}
		c.end = max(c.end, h.Period.End.UnixMicro())
		c.touched = now
	}
	return c
}

// counterOf returns the counter of a key, which it makes when there is none.
func (s *Store) counterOf(where *space, key counterKey) *counter {
	c := where.counters[key]
	if c == nil {
		c = &counter{key: key, space: where, idleIndex: -1}
		where.counters[key] = c
		s.counters++
	}
	return c
}

// release drops a counter that no record refers to and that says nothing, or
// queues it for when it will say nothing.
func (s *Store) release(c *counter, now int64) {
	if c.references > 0 {
		return // the last of them comes here again
	}
	if idleAt := c.silentFrom(s.quotaIdle); idleAt > now {
		if c.idleIndex < 0 {
			c.idleAt = idleAt
			c.space.idle.push(c)
		}
		return
	}
	if c.idleIndex >= 0 {
		c.space.idle.remove(c)
	}
	delete(c.space.counters, c.key)
	s.counters--
}
