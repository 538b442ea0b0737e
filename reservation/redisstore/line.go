package redisstore

import (
	"context"
	"sync"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// lineState is what a refused hold of slots is told of its counter's line.
type lineState struct {
	hold      int
	ahead     quota.Amount
	placeEnds int64
}

// lines reads what reserve.lua lists of lines.
func (r *reply) lines() []lineState {
	var lines []lineState
	for n := r.list(); n >= 3; n -= 3 {
		lines = append(lines, lineState{hold: int(r.int()), ahead: quota.Amount(r.int()), placeEnds: r.int()})
	}
	return lines
}

// line names the waiter, nobody for nil, and how long its place stands: 0 where it
// neither gets one nor loses it.
func (a *args) line(l *reservation.Line, dryRun bool) {
	if l == nil {
		a.str("")
		a.int(0)
		return
	}
	a.bytes(l.Waiter[:])
	if dryRun {
		a.int(0)
		return
	}
	a.int(l.Keep.Microseconds())
}

// standBehind takes from a level of slots what is for callers who wait before.
func (c counterState) standBehind(level *reservation.Level) {
	if c.ahead > 0 && level.Remaining > 0 {
		level.Remaining = max(0, level.Remaining-c.ahead)
	}
	if level.ResetsAt.IsZero() && c.placeEnds != 0 {
		level.ResetsAt = instant(c.placeEnds)
	}
}

// onlySlots says that nothing but slots refuses.
func onlySlots(r *reservation.ReserveRequest, states []counterState, now int64) bool {
	for i := range r.Holds {
		if r.Holds[i].Shadow {
			continue
		}
		if refusal, fits := states[i].refusal(i, r, now, now); !fits && refusal.Reason != reservation.ConcurrencyLimited {
			return false
		}
	}
	return true
}

// Leave is one script call, and one more for each pool on a Cluster with slots.
func (s *Store) Leave(ctx context.Context, r reservation.LeaveRequest) error {
	if err := r.Validate(); err != nil {
		return err
	}
	own := s.account(r.Account)
	if err := s.leave(ctx, own, r.Holds, r.Waiter, false); err != nil {
		return err
	}
	for _, l := range s.legs(r.Holds) {
		if err := s.leave(ctx, s.pool(l.pool), l.holds, r.Waiter, true); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) leave(ctx context.Context, p space, holds []reservation.Hold, waiter reservation.ID, leg bool) error {
	keys := []string{p.hash()}
	for i := range holds {
		if h := &holds[i]; h.Waits() && (leg || h.Pool == "" || s.cluster == nil) {
			_, ref := s.place(p, h.Kind, h.Counter)
			keys = append(keys, ref)
		}
	}
	if len(keys) == 1 {
		return nil
	}
	var a args
	a.bytes(waiter[:])
	out, err := s.run(ctx, scriptLeave, keys, a)
	if err != nil {
		return err
	}
	out.int()
	return out.err
}

// watchers are who is told of slots that were freed, by the counter's key. One
// subscription serves all of them, from the first one on.
type watchers struct {
	mu    sync.Mutex
	begun bool
	byKey map[string]map[*func()]struct{}
}

// Watch implements reservation.Store, by messages that the scripts publish.
func (s *Store) Watch(account string, slots reservation.Counter, wake func()) (stop func()) {
	_, key := s.place(s.account(account), quota.KindSlots, slots)
	w := &s.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byKey == nil {
		w.byKey = map[string]map[*func()]struct{}{}
	}
	if w.byKey[key] == nil {
		w.byKey[key] = map[*func()]struct{}{}
	}
	w.byKey[key][&wake] = struct{}{}
	if !w.begun && s.life.Err() == nil {
		w.begun = true
		s.work.Add(1)
		go s.listen()
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.byKey[key], &wake)
		if len(w.byKey[key]) == 0 {
			delete(w.byKey, key)
		}
	}
}

// listen hands messages on until the Store is closed. The client subscribes again
// by itself when a connection is lost; what is missed meanwhile waiters find out
// by asking.
func (s *Store) listen() {
	defer s.work.Done()
	subscription := s.client.Subscribe(s.life, s.prefix+"freed")
	defer subscription.Close()
	messages := subscription.Channel()
	for {
		select {
		case <-s.life.Done():
			return
		case m, open := <-messages:
			if !open {
				return
			}
			s.watchers.wake(m.Payload)
		}
	}
}

func (w *watchers) wake(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for wake := range w.byKey[key] {
		(*wake)()
	}
}
