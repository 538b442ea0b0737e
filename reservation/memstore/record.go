package memstore

import (
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// record is one reservation.
type record struct {
	id      reservation.ID
	account *space
	key     string
	ask     reservation.Hash
	token   []byte // never written to once stored: answers share it

	start     int64 // that it was given, if that was later than the Reserve
	expires   int64 // lease end
	retention int64
	due       int64 // where it is in the heap of its place
	index     int   // in that heap
	place     place

	state     reservation.State
	rank      ledger.Rank
	late      bool
	confirmed bool
	closedAt  int64
	body      reservation.Hash
	outcome   []byte // as token

	holds []hold // never moved while a slotHeap points into it
	kin   *kin   // nil for a record that is in no tree
}

// place is the heap that a record is in.
type place uint8

const (
	nowhere place = iota
	isOpen
	isWaiting
	isKept
)

// hold is what a record has of one counter.
type hold struct {
	record  *record
	counter *counter
	kind    quota.Kind
	charge  bool          // keep the hold when the lease ends
	sharing int32         // fair limits: how many accounts used the counter when it took; 0: it counts in no share
	bucket  quota.Bucket  // as reserved
	window  *quota.Window // as reserved; nil for other kinds
	at      int64         // windows: the instant under which the hold is counted; queue: its start
	max     quota.Amount  // as reserved
	end     int64         // of a quota's period

	charged  quota.Amount // what it has cost so far; once closed, the actual
	held     quota.Amount // quota: share of the counter's held
	unposted quota.Amount // quota: share of the counter's unposted
	risk     quota.Amount // bucket: share of the counter's risk
	used     quota.Amount // what a Renew told that it used so far
	slot     int          // in the counter's slots; -1 when it has none, or lapsed
}

// newRecord makes a record of the account, without a state.
func (s *Store) newRecord(a *space, id reservation.ID, holds int) *record {
	var r *record
	if last := len(s.free) - 1; last >= 0 {
		r = s.free[last]
		s.free[last] = nil
		s.free = s.free[:last]
		*r = record{holds: r.holds[:0]}
	} else {
		r = &record{}
	}
	if cap(r.holds) < holds {
		r.holds = make([]hold, 0, holds)
	}
	r.holds = r.holds[:holds]
	r.id, r.account, r.index = id, a, -1
	a.records[id] = r
	return r
}

// takeKey makes the record the one that its idempotency key replays.
func (r *record) takeKey(key string) {
	a := r.account
	if a.keys == nil {
		a.keys = map[string]*record{}
	}
	r.key, a.keys[key] = key, r
}

// bind fills in hold i, whose counter it makes when there is none.
func (s *Store) bind(r *record, i int, h *reservation.Hold, c *counter, now int64) *hold {
	if c == nil || h.Kind == quota.KindQuota {
		c = s.counterFor(r.account, h, now)
	}
	c.references++
	r.holds[i] = hold{
		record: r, counter: c, kind: h.Kind, charge: h.OnExpiry == quota.ExpiryCharge,
		bucket: h.Bucket, max: h.Max, slot: -1,
	}
	switch {
	case h.Kind == quota.KindQuota:
		r.holds[i].end = h.Period.End.UnixMicro()
	case h.Kind.IsWindow():
		window := h.Window
		r.holds[i].window, r.holds[i].at = &window, r.id.Minted().UnixMicro()
	case h.Kind == quota.KindLeakyQueue:
		r.holds[i].at = r.id.Minted().UnixMicro()
	}
	return &r.holds[i]
}

// move puts the record into another heap.
func (s *Store) move(r *record, to place, due int64) {
	a := r.account
	switch r.place {
	case isOpen:
		a.open.remove(r)
		s.open--
	case isWaiting:
		a.waiting.remove(r)
		s.waiting--
	case isKept:
		a.kept.remove(r)
		s.kept--
	}
	r.place, r.due = to, due
	switch to {
	case isOpen:
		a.open.push(r)
		s.open++
	case isWaiting:
		a.waiting.push(r)
		s.waiting++
	case isKept:
		a.kept.push(r)
		s.kept++
	}
}

// take adds a risk to the counter's open sum.
func (h *hold) take(risk quota.Amount) {
	h.risk = risk
	h.counter.risk += risk
}

// drop gives back what hold h has of its counter: the slot, the quota's shares
// and the risk.
func (h *hold) drop() {
	if h.slot >= 0 {
		h.counter.slots.remove(h)
		h.counter.wakeLine()
	}
	h.counter.held -= h.held
	h.counter.unposted -= h.unposted
	h.counter.risk -= h.risk
	h.held, h.unposted, h.risk = 0, 0, 0
}

// correct brings what the hold has charged to actual.
func (h *hold) correct(actual quota.Amount, now int64) {
	before, difference := h.charged, actual-h.charged
	h.charged = actual
	if h.record.kin != nil && h.kind.HasRate() {
		difference -= h.record.paid(h, before, actual, now)
	}
	arrival, booked := h.counter.arrival, int64(0)
	if h.kind.HasRate() && difference != 0 {
		h.correctShare(difference, now)
		booked = h.counter.rebook(h, before, actual, difference, now)
		now = h.counter.at(now)
	}
	switch {
	case difference == 0:
	case h.kind == quota.KindBucket:
		h.counter.correct(&h.bucket, difference, quota.Amount(booked), now)
	case h.kind == quota.KindGCRA && h.record.kin != nil:
		h.counter.arrival = quota.GCRA(h.bucket).Shift(h.counter.arrival, now, difference)
	case h.kind == quota.KindLeakyQueue && h.record.kin != nil:
		h.counter.arrival = quota.Queue(h.bucket).Shift(h.counter.arrival, now, difference)
	case h.kind == quota.KindGCRA:
		h.counter.arrival = quota.GCRA(h.bucket).Move(h.counter.arrival, now, before, actual)
	case h.kind == quota.KindLeakyQueue:
		h.counter.arrival = quota.Queue(h.bucket).Correct(h.counter.arrival, h.at, now, before, actual)
	case h.kind.IsWindow():
		var counted quota.Counted
		if h.counter.counted != nil {
			counted = *h.counter.counted
		}
		h.counter.count(h.window.Correct(counted, difference, h.at, now))
	}
	if h.kind == quota.KindGCRA && difference < 0 {
		h.counter.arrival = quota.GCRA(h.bucket).Beside(arrival, h.counter.arrival, now, booked)
	}
}

// count stores what a window has counted.
func (c *counter) count(counted quota.Counted) {
	switch {
	case counted.Empty():
		c.counted = nil
	case c.counted == nil:
		c.counted = &counted
	default:
		*c.counted = counted
	}
}

// expire ends a lease.
func (s *Store) expire(r *record, now int64) {
	s.depart(r, now)
	r.state, r.rank, r.closedAt = reservation.StateExpired, ledger.RankExpired, r.expires
	for i := range r.holds {
		h := &r.holds[i]
		open, most := h.held, h.charged+h.risk
		h.drop()
		if h.kind == quota.KindQuota {
			// In full until the ledger confirmed a closing: a Refund that went
			// around this engine may have posted as much.
			h.unposted = open
			h.counter.unposted += open
		}
		if h.charge {
			h.correct(max(most, h.used), now)
		} else {
			h.correct(h.used, now)
		}
	}
	s.move(r, isWaiting, now)
}

// adopt gives the record a closing.
func (s *Store) adopt(r *record, rank ledger.Rank, actual []quota.Amount, now int64) {
	if r.kin != nil {
		s.depart(r, now)
		for i := range r.holds {
			if h := &r.holds[i]; h.kind == quota.KindQuota {
				r.paid(h, r.quotaCost(h), actual[i], now)
			}
		}
	}
	r.rank, r.state = rank, reservation.StateSettled
	if rank == ledger.RankExpired {
		r.state = reservation.StateExpired
	}
	for i := range r.holds {
		h := &r.holds[i]
		h.drop()
		if h.kind != quota.KindSlots {
			h.correct(actual[i], now)
		}
	}
}

// await makes an adopted closing wait for the ledger.
func (s *Store) await(r *record, now int64) {
	for i := range r.holds {
		if h := &r.holds[i]; h.kind == quota.KindQuota {
			h.unposted = h.charged
			h.counter.unposted += h.charged
		}
	}
	r.confirmed, r.closedAt = false, now
	s.move(r, isWaiting, now+reservation.OutboxDelay.Microseconds())
}

// forgetAt is when a confirmed record is forgotten. A lease and a retention
// shorter than MintSkew must not let a script that runs late hold again.
func (r *record) forgetAt() int64 {
	return max(r.expires+r.retention, r.id.Minted().UnixMicro()+reservation.MintSkew.Microseconds()+1)
}

func (r *record) forgotten(now int64) bool { return r.place == isKept && now >= r.due }

// replays says whether the record's idempotency key still stands for it.
func (r *record) replays(now int64) bool { return now < r.expires+r.retention }

// maxFree bounds the records that wait to be used again.
const maxFree = 4096

// forget drops the record and what only it kept alive.
func (s *Store) forget(r *record, now int64) {
	a := r.account
	s.move(r, nowhere, 0)
	delete(a.records, r.id)
	if r.key != "" && a.keys[r.key] == r {
		delete(a.keys, r.key)
	}
	for i := range r.holds {
		c := r.holds[i].counter
		c.references--
		s.release(c, now)
		if c.space != a {
			s.settle(c.space)
		}
	}
	if len(s.free) < maxFree {
		clear(r.holds)
		*r = record{holds: r.holds[:0]}
		s.free = append(s.free, r)
	}
}

// show returns the record as the contract shows it.
func (r *record) show(now int64) reservation.Record { return r.showInto(nil, now) }

// showInto is show with a slice for the amounts.
func (r *record) showInto(actual []quota.Amount, now int64) reservation.Record {
	shown := reservation.Record{
		State: r.state, ExpiresAt: at(r.expires), Token: r.token, Rank: r.rank, Body: r.body,
		Outcome: r.outcome, Late: r.late, Confirmed: r.confirmed,
	}
	if r.state == reservation.StateHeld {
		if now >= r.expires {
			shown.State = reservation.StateExpired
		} else if r.start != 0 {
			shown.StartAt = at(r.start)
		}
		return shown
	}
	shown.ClosedAt = at(r.closedAt)
	if cap(actual) < len(r.holds) {
		actual = make([]quota.Amount, 0, len(r.holds))
	}
	for i := range r.holds {
		actual = append(actual, r.holds[i].charged)
	}
	shown.Actual = actual
	return shown
}
