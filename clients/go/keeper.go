package budget

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// How often a lease is renewed beside a third of its length.
const (
	// verdictEvery is how often at least a call that is given verdicts is renewed.
	verdictEvery = 10 * time.Second
	// closestRenewals is how far apart two renewals are at least, when much was used
	// or a lease is about to end.
	closestRenewals = time.Second
	// muchOf is the share, one in so many, of what remained by the last answer: who
	// used as much since is renewed soon.
	muchOf = 10
)

// maxTold is how many meters a usage may name.
const maxTold = 32

// keeper renews one reservation's lease, tells what its call used so far, and ends
// the call's context when the broker says so.
type keeper struct {
	// renew asks the broker once.
	renew     func(context.Context, *budgetv1.Usage) (renewed, error)
	id        string
	lease     time.Duration
	inside    bool // an envelope, with which it ends
	onVerdict func(Renewal)
	stopCall  context.CancelCauseFunc // ends the call's context

	end  context.CancelFunc
	done chan struct{} // closed when no Renew runs any more, nor will
	news chan struct{} // holds one when told is new

	mu        sync.Mutex
	told      map[string]int64 // by the call; nil: nothing yet
	sent      map[string]int64 // to the broker; it has these
	remaining map[string]int64 // by its last verdict; nil: none came
	verdict   Verdict          // the last one; Stop stays
	untold    error            // why the usage is not told: the broker does not take it
	calling   bool             // onVerdict runs
	changed   *Renewal         // what it is called with next
	ended     bool             // it is not called any more
}

// keepAlive begins to renew a reservation, whatever becomes of ctx.
func (c *Client) keepAlive(ctx context.Context, r *Reservation, request Request, stopCall context.CancelCauseFunc) *keeper {
	k := &keeper{
		id: r.ID, lease: request.lease(), inside: request.Parent != "", onVerdict: request.OnVerdict, stopCall: stopCall,
		renew: func(ctx context.Context, told *budgetv1.Usage) (renewed, error) {
			return c.renew(ctx, r.ID, request.lease(), told, 0)
		},
	}
	k.begin(ctx, r.left)
	return k
}

func (k *keeper) begin(ctx context.Context, left time.Duration) {
	ctx, k.end = context.WithCancel(context.WithoutCancel(ctx))
	k.done, k.news = make(chan struct{}), make(chan struct{}, 1)
	go k.run(ctx, left)
}

// stop ends the renewals, and waits for the last one.
func (k *keeper) stop() {
	k.mu.Lock()
	k.ended = true
	k.mu.Unlock()
	k.end()
	<-k.done
}

// setUsed notes what the call used so far.
func (k *keeper) setUsed(amounts map[string]int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	isNew := k.told == nil
	if isNew {
		k.told = make(map[string]int64, len(amounts))
	}
	for meter, amount := range amounts {
		known, named := k.told[meter]
		if !named && (len(k.told) >= maxTold || !utf8.ValidString(meter)) {
			k.cannotTell(fmt.Errorf("the meter %.70q is not UTF-8, or one too many: want %d at most", meter, maxTold))
			continue
		}
		if !named || amount > known {
			k.told[meter] = max(amount, 0)
			isNew = true
		}
	}
	if isNew {
		select {
		case k.news <- struct{}{}:
		default:
		}
	}
}

// usedSoFar is what the call told; nil: nothing.
func (k *keeper) usedSoFar() map[string]int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.told)
}

// cannotTell notes once, in the log, that what the call used is not told, or not all of it.
func (k *keeper) cannotTell(err error) {
	if k.untold == nil {
		slog.Warn("what a call used so far can't be told; its lease is renewed without", "reservation", shortened(k.id), "error", err)
	}
	k.untold = err
}

// usage is what the next renewal carries; nil: nothing, and it asks for no verdict.
func (k *keeper) usage() *budgetv1.Usage {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.asks() {
		return nil
	}
	return &budgetv1.Usage{Amounts: maps.Clone(k.told)}
}

// asks says whether renewals ask for a verdict.
func (k *keeper) asks() bool {
	return (k.told != nil || k.onVerdict != nil) && !errors.Is(k.untold, errRefused)
}

// errRefused says that the broker refused the usage so far.
var errRefused = errors.New("the broker refuses it")

// run renews until the keeper is ended, or the reservation is.
func (k *keeper) run(ctx context.Context, left time.Duration) {
	defer close(k.done)
	growing := newBackOff()
	last := time.Now()
	next, failing := last.Add(k.third(left)), false
	for {
		due := next
		if at := last.Add(k.within()); !failing && at.Before(due) {
			due = at
		}
		if !k.wait(ctx, time.Until(due)) {
			if ctx.Err() != nil {
				return
			}
			continue // there is news
		}
		attempt, cancel := context.WithTimeout(ctx, min(attemptTimeout, k.lease/3))
		told := k.usage()
		got, err := k.renew(attempt, told)
		cancel()
		last = time.Now()
		failing = false
		switch {
		case err == nil:
			next = last.Add(k.third(got.left))
			growing.Reset()
			k.hear(told, got.Renewal)
		case ctx.Err() != nil:
			return
		case Unanswered(err):
			failing = true
			next = last.Add(min(growing.NextBackOff(), k.lease/3))
		case connect.CodeOf(err) == connect.CodeInvalidArgument && told != nil:
			k.mu.Lock()
			k.cannotTell(fmt.Errorf("%w: %w", errRefused, err))
			k.mu.Unlock()
			next = last // once more without it
		default:
			k.lost(err) // the Refund will count as late
			return
		}
	}
}

// wait waits until it is time to renew: false when there was news before, or ctx ended.
func (k *keeper) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-k.news:
	case <-timer.C:
		return ctx.Err() == nil
	}
	return false
}

// third is when to renew a lease next: after a third of its length, or in an envelope,
// which may end it earlier, of what is left of it.
func (k *keeper) third(left time.Duration) time.Duration {
	if !k.inside {
		return k.lease / 3
	}
	return min(max(left/3, closestRenewals), k.lease/3)
}

// within is when to renew at the latest for a verdict.
func (k *keeper) within() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !k.asks(), k.verdict == Stop:
		return k.lease
	case k.usedMuch():
		return min(closestRenewals, k.lease/3)
	}
	return min(verdictEvery, k.lease/3)
}

// usedMuch says whether enough was used since the broker heard of it to ask soon.
func (k *keeper) usedMuch() bool {
	if k.told != nil && k.remaining == nil {
		return true // nothing is known yet
	}
	for meter, used := range k.told {
		left, limited := k.remaining[meter]
		if more := used - k.sent[meter]; limited && more > 0 && more >= left/muchOf {
			return true
		}
	}
	return false
}

// hear takes an answer.
func (k *keeper) hear(told *budgetv1.Usage, r Renewal) {
	if told == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent, k.remaining = told.Amounts, maps.Clone(r.Remaining)
	if k.remaining == nil {
		k.remaining = map[string]int64{}
	}
	if k.verdict == Stop || r.Verdict == k.verdict {
		return
	}
	changed := k.verdict != NoVerdict || r.Verdict > Continue
	if k.verdict = r.Verdict; changed {
		k.call(r)
	}
	if r.Verdict == Stop {
		r.Remaining = maps.Clone(r.Remaining) // the other one is onVerdict's
		k.stopCall(&StoppedError{Renewal: r})
	}
}

// call calls onVerdict, after the call of it that is under way.
func (k *keeper) call(r Renewal) {
	if k.onVerdict == nil || k.ended {
		return
	}
	if k.changed = &r; k.calling {
		return
	}
	k.calling = true
	go func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		for k.changed != nil && !k.ended {
			r := *k.changed
			k.changed = nil
			k.mu.Unlock()
			k.onVerdict(r)
			k.mu.Lock()
		}
		k.calling = false
	}()
}

// lost ends the context of a call that is over for the broker, where it takes its
// word: in an envelope, and where it is given verdicts. Any other goes on, and is
// charged late.
func (k *keeper) lost(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if errors.Is(err, ErrEnded) && (k.inside || k.asks()) {
		k.stopCall(&StoppedError{Err: ErrEnded})
	}
}
