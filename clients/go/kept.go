package budget

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Refunds that could not be delivered are kept in memory and tried again, one
// after the other, by one goroutine that lives as long as there are any.

// LostRefund is a Refund that is not tried any more. The broker takes back by
// itself what was held; it does not know what the call used unless somebody
// refunds it by hand, which it accepts late.
type LostRefund struct {
	Reservation string
	Usage       Usage
	Err         error // the last try's, and why there is no other
}

// keptRefunds are the Refunds that wait.
type keptRefunds struct {
	refund func(context.Context, string, Usage) error
	lost   func(LostRefund)
	most   int
	age    time.Duration

	mu      sync.Mutex
	waiting []keptRefund
	closed  bool
	idle    chan struct{} // closed when the goroutine has ended; nil: none was begun
	hurry   chan struct{} // ends a wait between two tries
	stop    context.CancelFunc
}

// The longest wait between two tries, and while Close waits for them.
const (
	longestPause = 30 * time.Second
	closingPause = time.Second
)

type keptRefund struct {
	reservation string
	usage       Usage
	giveUp      time.Time
	err         error
}

var (
	errTooManyKept = errors.New("too many refunds wait already")
	errKeptTooLong = errors.New("it was tried for long enough")
	errClosed      = errors.New("the client is closed")
)

// logLost is what hears of lost Refunds unless WithOnLost gives another.
func logLost(lost LostRefund) {
	slog.Error("a refund is lost; the broker does not know what the call used", "reservation", shortened(lost.Reservation), "error", lost.Err)
}

// shortened names a reservation in messages.
func shortened(reservation string) string { return fmt.Sprintf("%.12s…", reservation) }

// keep takes a Refund that failed for now. False: it is lost, and lost has heard
// of it.
func (k *keptRefunds) keep(reservation string, usage Usage, failed error) bool {
	k.mu.Lock()
	var why error
	switch {
	case k.closed:
		why = errClosed
	case len(k.waiting) >= k.most:
		why = errTooManyKept
	}
	if why != nil {
		k.mu.Unlock()
		k.lost(LostRefund{reservation, usage, fmt.Errorf("%w: %w", why, failed)})
		return false
	}
	defer k.mu.Unlock()
	k.waiting = append(k.waiting, keptRefund{reservation, usage, time.Now().Add(k.age), failed})
	if len(k.waiting) == 1 {
		var ctx context.Context
		ctx, k.stop = context.WithCancel(context.Background())
		k.idle = make(chan struct{})
		go k.deliver(ctx, k.idle)
	}
	return true
}

// deliver tries the oldest, and puts it last when it fails, with growing waits
// between failures, until none waits or ctx ends.
func (k *keptRefunds) deliver(ctx context.Context, idle chan struct{}) {
	defer close(idle)
	growing := newBackOff()
	growing.MaxInterval = longestPause
	wait := growing.NextBackOff() // it has failed just now
	for k.pause(ctx, wait) {
		k.mu.Lock()
		next := k.waiting[0]
		k.mu.Unlock()
		err := k.refund(ctx, next.reservation, next.usage)
		if ctx.Err() != nil {
			return // Close gave up; what waits is its to report
		}
		var lost error
		wait = growing.NextBackOff()
		switch {
		case err == nil:
			growing.Reset()
			wait = 0
		case !isTransient(err):
			lost = err
		case time.Now().After(next.giveUp):
			lost = fmt.Errorf("%w: %w", errKeptTooLong, err)
		}
		if lost != nil {
			k.lost(LostRefund{next.reservation, next.usage, lost})
		}
		k.mu.Lock()
		k.waiting = k.waiting[1:]
		if err != nil && lost == nil {
			next.err = err
			k.waiting = append(k.waiting, next)
		}
		if len(k.waiting) == 0 {
			k.waiting = nil
			k.stop()
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
	}
}

// pause waits, or until Close hurries. False: ctx has ended.
func (k *keptRefunds) pause(ctx context.Context, wait time.Duration) bool {
	k.mu.Lock()
	if k.closed {
		wait = min(wait, closingPause)
	}
	k.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-k.hurry:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// close delivers what waits, until ctx ends; what then still waits is lost.
func (k *keptRefunds) close(ctx context.Context) error {
	k.mu.Lock()
	k.closed = true
	if len(k.waiting) == 0 {
		k.mu.Unlock()
		return nil
	}
	idle, stop := k.idle, k.stop
	k.mu.Unlock()
	select {
	case k.hurry <- struct{}{}:
	default:
	}
	select {
	case <-idle:
	case <-ctx.Done():
		stop()
		<-idle
	}
	k.mu.Lock()
	left := k.waiting
	k.waiting = nil
	k.mu.Unlock()
	for _, l := range left {
		k.lost(LostRefund{l.reservation, l.usage, fmt.Errorf("%w: %w", errClosed, l.err)})
	}
	if len(left) > 0 {
		return fmt.Errorf("refunds that were not delivered: %d: %w", len(left), context.Cause(ctx))
	}
	return nil
}
