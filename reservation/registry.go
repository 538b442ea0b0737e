package reservation

import (
	"bytes"
	"container/heap"
	"slices"
	"sync"
	"time"
)

// registry remembers the open reservations that this broker granted or renewed,
// so that they can be brought back when the engine has lost its data. An entry
// goes when its reservation is closed here or its lease has ended. Adding,
// moving and removing one take the same time however many there are.
//
// An entry takes about 0.2 kB and its token, which has 0.3 to
// 0.6 kB with a handful of limits and at most [MaxTokenBytes].
type registry struct {
	most    int // entries; 0: nothing is remembered
	metrics *metrics

	mu      sync.Mutex
	entries map[ID]*registered
	ends    map[int64]*ending
	order   endings // the values of ends, the earliest first
}

// registered is an open reservation.
type registered struct {
	id        ID
	raw       []byte // the sealed token
	key       string // idempotency key; "" for none or when this broker does not know it
	body      Hash
	startAt   int64 // of one that waits, microseconds since 1970; 0 for none
	expiresAt int64 // likewise
	renewed   bool  // the lease was moved here

	end        *ending
	prev, next *registered // of the same ending
}

// ending lists the reservations whose lease ends in one second.
type ending struct {
	second int64
	first  *registered
}

// endings is a heap of endings. It grows by one for each second in which a
// lease ends, not for each lease.
type endings []*ending

func (e endings) Len() int           { return len(e) }
func (e endings) Less(i, j int) bool { return e[i].second < e[j].second }
func (e endings) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *endings) Push(x any)        { *e = append(*e, x.(*ending)) }
func (e *endings) Pop() any {
	last := len(*e) - 1
	popped := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return popped
}

func newRegistry(most int, m *metrics) *registry {
	return &registry{most: max(most, 0), metrics: m, entries: map[ID]*registered{}, ends: map[int64]*ending{}}
}

// granted notes an open reservation, with the start that it was given, zero for
// unknown. One that is known keeps what is known of it and the later lease end.
func (r *registry) granted(id ID, raw []byte, key string, body Hash, startAt, expiresAt time.Time) {
	if r.most == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(id, raw)
	e.key, e.body = key, body
	if !startAt.IsZero() {
		e.startAt = startAt.UnixMicro()
	}
	r.move(e, max(e.expiresAt, expiresAt.UnixMicro()))
	r.bound()
}

// renewed notes a reservation's new lease end. It may have been granted by
// another broker.
func (r *registry) renewed(id ID, raw []byte, expiresAt time.Time) {
	if r.most == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(id, raw)
	e.renewed = true
	r.move(e, max(e.expiresAt, expiresAt.UnixMicro()))
	r.bound()
}

// closed forgets a reservation.
func (r *registry) closed(id ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[id]; e != nil {
		r.remove(e)
	}
}

// trim forgets the reservations whose lease has ended.
func (r *registry) trim(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.order) > 0 && r.order[0].second < now.Unix() {
		for r.order[0].first != nil {
			r.remove(r.order[0].first)
		}
		r.dropFirst()
	}
}

// open returns the reservations whose lease has not ended, in the order in
// which they were made.
func (r *registry) open(now time.Time) []registered {
	r.mu.Lock()
	open := make([]registered, 0, len(r.entries))
	for _, e := range r.entries {
		if e.expiresAt > now.UnixMicro() {
			open = append(open, *e)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(open, func(a, b registered) int { return bytes.Compare(a.id[:], b.id[:]) })
	return open
}

// find returns what is known of a reservation.
func (r *registry) find(id ID) (registered, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[id]; e != nil {
		return *e, true
	}
	return registered{}, false
}

// findOr is find, and for a reservation that is not registered what its token says:
// it was made with the first lease.
func (r *registry) findOr(token *reservationToken, raw []byte) registered {
	if e, known := r.find(token.ID); known {
		return e
	}
	return registered{id: token.ID, raw: raw, expiresAt: token.ID.Minted().Add(token.Lease).UnixMicro()}
}

func (r *registry) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.entries)
}

func (r *registry) entry(id ID, raw []byte) *registered {
	e := r.entries[id]
	if e == nil {
		e = &registered{id: id, raw: raw}
		r.entries[id] = e
	}
	return e
}

// move sets an entry's lease end.
func (r *registry) move(e *registered, expiresAt int64) {
	second := expiresAt / int64(time.Second/time.Microsecond)
	e.expiresAt = expiresAt
	if e.end != nil && e.end.second == second {
		return
	}
	r.unlink(e)
	end := r.ends[second]
	if end == nil {
		end = &ending{second: second}
		r.ends[second] = end
		heap.Push(&r.order, end)
	}
	if e.end, e.next = end, end.first; e.next != nil {
		e.next.prev = e
	}
	end.first = e
}

func (r *registry) unlink(e *registered) {
	if e.end == nil {
		return
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		e.end.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	e.end, e.prev, e.next = nil, nil, nil
}

func (r *registry) remove(e *registered) {
	r.unlink(e)
	delete(r.entries, e.id)
}

// bound drops what there is no room for: the leases that end first need
// bringing back the least.
func (r *registry) bound() {
	for len(r.entries) > r.most {
		if first := r.order[0].first; first != nil {
			r.remove(first)
			r.metrics.unregistered.Inc()
			continue
		}
		r.dropFirst()
	}
}

// dropFirst drops the earliest ending, which is empty.
func (r *registry) dropFirst() {
	delete(r.ends, r.order[0].second)
	heap.Pop(&r.order)
}
