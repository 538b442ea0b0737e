package reservation

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Reserve that may wait, and that nothing but slots refuses, is held by its broker:
// it stands in line in the engine (see Line) and is asked for again when a slot may be
// free. Who waits at one broker for one counter is woken one after the other, so that a
// freed slot costs each broker one ask and not one for everybody who waits.
const (
	// heldRefresh is how often a held call asks if nobody wakes it: for what is missed,
	// and for what ends by time.
	heldRefresh = time.Second
	// heldKeep is how long its place stands without that: what a dead broker's callers
	// hold up.
	heldKeep = 3 * time.Second
	// heldSoonest is the shortest wait between two asks of a call that nobody wakes.
	heldSoonest = 10 * time.Millisecond
)

// ErrStopping says that a broker stops and holds no calls any more. It wraps
// [ErrUnavailable]: nothing was decided, and the same call may go to another broker.
var ErrStopping = fmt.Errorf("the broker is stopping and holds no calls any more: %w", ErrUnavailable)

// heldCalls are the calls that wait for slots at this broker. A held call is in the
// line of each counter of slots that it asks for.
type heldCalls struct {
	store   Store
	most    int
	ended   chan struct{} // closed when no call is to be held any more
	mu      sync.Mutex    // never taken by who wakes
	count   int
	stopped bool
	lines   map[heldCounter]*heldLine
}

// heldCounter names a counter of slots; of an account or, of a pool, of "".
type heldCounter struct {
	account string
	Counter
}

type heldLine struct {
	stop func() // ends the watch

	mu    sync.Mutex // nothing is asked of the engine under it
	calls []*heldCall
}

// heldCall is one of them.
type heldCall struct {
	wake chan struct{} // of capacity 1

	mu    sync.Mutex
	place int // in line, as the engine told last
}

func newHeldCalls(store Store, most int) *heldCalls {
	return &heldCalls{store: store, most: most, ended: make(chan struct{}), lines: map[heldCounter]*heldLine{}}
}

// end has every held call come back at once, and no more held.
func (h *heldCalls) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped {
		h.stopped = true
		close(h.ended)
	}
}

func (h *heldCalls) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// take counts one call more. It says false where there is no room.
func (h *heldCalls) take() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count >= h.most {
		return false
	}
	h.count++
	return true
}

func (h *heldCalls) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count--
}

// enter has a call woken for slots of the counters.
func (h *heldCalls) enter(counters []heldCounter, call *heldCall) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range counters {
		line := h.lines[c]
		if line == nil {
			line = &heldLine{}
			line.stop = h.store.Watch(c.account, c.Counter, line.wake)
			h.lines[c] = line
		}
		line.mu.Lock()
		line.calls = append(line.calls, call)
		line.mu.Unlock()
	}
}

// leave undoes enter. With more set, slots may be left for the next: it is woken.
func (h *heldCalls) leave(counters []heldCounter, call *heldCall, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range counters {
		line := h.lines[c]
		line.mu.Lock()
		line.calls = slices.DeleteFunc(line.calls, func(other *heldCall) bool { return other == call })
		left := len(line.calls)
		line.mu.Unlock()
		switch {
		case left == 0:
			line.stop()
			delete(h.lines, c)
		case more:
			line.wake()
		}
	}
}

// wake has the first of those who wait here ask.
func (l *heldLine) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.calls) == 0 {
		return
	}
	first := slices.MinFunc(l.calls, func(a, b *heldCall) int { return a.standing() - b.standing() }) // of equals the first
	select {
	case first.wake <- struct{}{}:
	default: // it is about to ask
	}
}

func (c *heldCall) standing() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.place
}

func (c *heldCall) stand(place int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.place = place
}

// EndHeld answers every call that waits for a slot with ErrStopping, and holds none any
// more. A call with an idempotency key keeps its place for a moment: repeated at another
// broker it goes on waiting where it was.
func (b *Broker) EndHeld() { b.held.end() }

// mayHold says whether a Reserve is one to be held.
func (w *work) mayHold() bool {
	return w.maxWait > 0 && !w.dryRun && w.parent == nil && !w.token.Charge && len(w.slotCounters()) > 0
}

// slotCounters are the counters for whose slots the call may have to wait.
func (w *work) slotCounters() []heldCounter {
	var counters []heldCounter
	for i := range w.plan.holds {
		if h := &w.plan.holds[i].Hold; h.Waits() {
			c := heldCounter{w.token.Account, h.Counter}
			if h.Pool != "" {
				c.account = "" // one line for all accounts
			}
			counters = append(counters, c)
		}
	}
	return counters
}

// waiter is who waits in the engine's lines: of a repeated call the same.
func (w *work) waiter(b *Broker) ID {
	if w.key == "" {
		return NewID(b.now())
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %x", w.token.Account, w.key, w.body))
	return ID(sum[:len(ID{})])
}

// hold asks again and again for a call that slots refused, until it is decided, the
// wait is over, or its caller is gone. It returns how long it waited.
func (b *Broker) hold(ctx context.Context, w *work, refused Decision) (Decision, time.Duration, error) {
	began := time.Now()
	until, cut := began.Add(w.maxWait), false
	if deadline, bounded := ctx.Deadline(); bounded {
		// In time for the refusal to arrive.
		if last := deadline.Add(-min(b.config.Deadline, time.Until(deadline)/10)); last.Before(until) {
			until, cut = last, true
		}
	}
	d, result, err := b.holdUntil(ctx, w, refused, until)
	waited := time.Since(began)
	b.metrics.held.WithLabelValues(result).Observe(waited.Seconds())
	switch {
	case result == heldGranted && d.Grant != nil && !d.Grant.Replayed:
		return d, waited, err // the engine took its places
	case w.key != "" && (result == heldLeft || result == heldEnded || result == heldRefused && cut):
		return d, waited, err // it may come back, at another broker: its place ends by itself
	}
	b.leaveLine(ctx, w)
	return d, waited, err
}

// What became of a held call.
const (
	heldGranted = "granted"
	heldRefused = "refused" // the wait was over, or something else refuses it now
	heldLeft    = "left"    // its caller is gone
	heldEnded   = "ended"   // the broker stops
	heldFailed  = "failed"
	heldFull    = "full" // the broker holds as many as it may
)

func (b *Broker) holdUntil(ctx context.Context, w *work, d Decision, until time.Time) (Decision, string, error) {
	if !b.held.take() {
		return d, heldFull, nil
	}
	defer b.held.release()
	call := &heldCall{wake: make(chan struct{}, 1)}
	call.stand(w.place)
	counters := w.slotCounters()
	b.held.enter(counters, call)
	more := false
	defer func() { b.held.leave(counters, call, more) }()
	timer := time.NewTimer(heldSoonest) // a slot may have come free before the call was entered
	defer timer.Stop()
	for {
		select {
		case <-b.held.ended:
			return Decision{}, heldEnded, ErrStopping
		case <-ctx.Done():
			return Decision{}, heldLeft, ctx.Err()
		case <-call.wake:
		case <-timer.C:
		}
		left := time.Until(until)
		if left <= 0 {
			return d, heldRefused, nil
		}
		var err error
		if d, err = b.askAgain(ctx, w, left); err != nil {
			return d, heldFailed, err
		}
		switch {
		case d.Grant != nil:
			more = true
			if err := ctx.Err(); err != nil && w.key == "" {
				b.giveUp(ctx, d.Grant.Reservation)
				return Decision{}, heldLeft, err
			}
			return d, heldGranted, nil
		case w.place == 0:
			return d, heldRefused, nil
		}
		call.stand(w.place)
		if now := w.slotCounters(); !slices.Equal(now, counters) { // the policy has changed
			b.held.leave(counters, call, false)
			counters = now
			b.held.enter(counters, call)
		}
		timer.Reset(min(w.nextAsk(d), max(time.Until(until), 0)))
	}
}

// nextAsk is when a held call asks again if nobody wakes it. Who is next looks when the
// first of the leases ends.
func (w *work) nextAsk(d Decision) time.Duration {
	if w.place == 1 && d.Refusal.Retryable() {
		return min(max(d.Refusal.RetryAt.Sub(d.Refusal.Now), heldSoonest), heldRefresh)
	}
	return heldRefresh
}

// askAgain asks the engine once more, by the policy of now, for a call that may wait so
// long. Its caller's hanging up does not cut the ask: what it takes must be known.
func (b *Broker) askAgain(ctx context.Context, w *work, left time.Duration) (Decision, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.config.Deadline)
	defer cancel()
	w.policy, w.maxWait = b.Policies.Current(), max(left.Truncate(time.Microsecond), time.Microsecond)
	if err := w.mintAnew(ctx, b, b.now()); err != nil {
		return Decision{}, err
	}
	return b.commit(ctx, w)
}

// leaveLine gives up the places of a call that is not held any more.
func (b *Broker) leaveLine(ctx context.Context, w *work) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.config.Deadline)
	defer cancel()
	// A place that can't be given up ends by itself.
	_ = b.Store.Leave(ctx, LeaveRequest{Account: w.token.Account, Holds: w.token.holds(), Waiter: w.line.Waiter})
}

// giveUp gives back what a caller got that is gone. Its lease ends it where that fails.
func (b *Broker) giveUp(ctx context.Context, reservation string) {
	if _, err := b.Refund(context.WithoutCancel(ctx), reservation, Usage{Unused: true}); err != nil && !errors.Is(err, ErrUnavailable) {
		b.config.Logger.Warn("a slot of a caller that is gone was not given back; its lease ends it", "error", err)
	}
}
