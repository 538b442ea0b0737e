package budget

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
)

// What could not be delivered is kept in memory and tried again, one after the
// other, by one goroutine that lives as long as there is any: Refunds, and Reserves
// of which nobody knows whether they hold something.

// LostRefund is a Refund that is not tried any more. The broker takes back by
// itself what was held; it does not know what the call used unless somebody
// refunds it by hand, which it accepts late.
type LostRefund struct {
	Reservation string
	Usage       Usage
	Err         error // the last try's, and why there is no other
}

// kept are the calls that wait.
type kept struct {
	deliverOne func(context.Context, *keptCall) error
	lost       func(LostRefund)
	most       int
	mostBytes  int
	age        time.Duration

	mu      sync.Mutex
	waiting []*keptCall
	trying  *keptCall // the one under way, which is not among those that wait
	bytes   int       // the weight of all
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

// keptCall is a Refund, or a Reserve that becomes the Refund of what it finds.
type keptCall struct {
	reservation string
	usage       Usage

	reserve []byte // the ReserveRequest that may have been executed; nil: a Refund
	except  string // the reservation of its key that goes on
	forget  bool   // nothing was used: nobody has to hear of its loss

	weight int
	giveUp time.Time
	err    error
}

var (
	errTooManyKept = errors.New("too many refunds wait already")
	errTooLarge    = errors.New("the refunds that wait are too large, and this is the largest")
	errKeptTooLong = errors.New("it was tried for long enough")
	errTooManyRun  = errors.New("too many calls run in the background, or the client is closed")
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
func (k *kept) keep(reservation string, usage Usage, failed error) bool {
	return k.add(&keptCall{
		reservation: reservation, usage: usage, weight: len(reservation) + usage.weight(),
		giveUp: time.Now().Add(k.age), err: failed,
	})
}

// keepReserve takes a Reserve that may hold something; what its key holds beside
// the reservation except is given back. After its lease there is nothing to do.
// Asked again it waits for nothing: what is not held needs no start.
func (k *kept) keepReserve(request Request, except string) {
	within := request.MaxWait + request.lease()
	request.MaxWait = 0
	text, err := proto.Marshal(request.message())
	if err != nil {
		return // then it was never sent
	}
	k.add(&keptCall{
		usage: Unused(), reserve: text, except: except, forget: true, weight: callWeight + len(text),
		giveUp: time.Now().Add(within),
	})
}

// add takes a call, unless it is one too many or the largest of those that are
// together too large.
func (k *kept) add(call *keptCall) bool {
	k.mu.Lock()
	var dropped []*keptCall
	var why error
	switch {
	case k.closed:
		why = errClosed
	case k.count() >= k.most:
		why = errTooManyKept
	}
	if why != nil {
		dropped = append(dropped, call)
	} else {
		k.waiting = append(k.waiting, call)
		k.bytes += call.weight
		dropped, why = k.makeRoom(), errTooLarge
		if k.idle == nil && len(k.waiting) > 0 {
			var ctx context.Context
			ctx, k.stop = context.WithCancel(context.Background())
			k.idle = make(chan struct{})
			go k.deliver(ctx, k.idle)
		}
	}
	k.mu.Unlock()
	for _, d := range dropped {
		k.report(d, fmt.Errorf("%w: %w", why, d.err))
	}
	return !slices.Contains(dropped, call)
}

// makeRoom drops the largest calls that wait until all fit together.
func (k *kept) makeRoom() []*keptCall {
	var dropped []*keptCall
	for k.bytes > k.mostBytes && len(k.waiting) > 0 {
		largest := 0
		for i, call := range k.waiting {
			if call.weight > k.waiting[largest].weight {
				largest = i
			}
		}
		k.bytes -= k.waiting[largest].weight
		dropped = append(dropped, k.waiting[largest])
		k.waiting = slices.Delete(k.waiting, largest, largest+1)
	}
	return dropped
}

func (k *kept) count() int {
	if k.trying != nil {
		return len(k.waiting) + 1
	}
	return len(k.waiting)
}

func (k *kept) report(call *keptCall, why error) {
	if !call.forget {
		k.lost(LostRefund{call.reservation, call.usage, why})
	}
}

// deliver tries the oldest, and puts it last when it fails, with growing waits
// between failures, until none waits or ctx ends.
func (k *kept) deliver(ctx context.Context, idle chan struct{}) {
	defer close(idle)
	growing := newBackOff()
	growing.MaxInterval = longestPause
	wait := growing.NextBackOff() // it has failed just now
	for k.pause(ctx, wait) {
		call := k.next()
		if call == nil {
			return
		}
		err := k.deliverOne(ctx, call)
		if err != nil && ctx.Err() != nil {
			return // Close gave up; what waits is its to report
		}
		var lost error
		wait = growing.NextBackOff()
		switch {
		case err == nil:
			growing.Reset()
			wait = 0
		case !Unanswered(err):
			lost = err
		case time.Now().After(call.giveUp):
			lost = fmt.Errorf("%w: %w", errKeptTooLong, err)
		}
		if lost != nil {
			k.report(call, lost)
		}
		if !k.tried(call, err, err != nil && lost == nil) {
			return
		}
	}
}

// next takes the call that has waited longest. Nil: none waits any more.
func (k *kept) next() *keptCall {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended() {
		return nil
	}
	k.trying, k.waiting = k.waiting[0], k.waiting[1:]
	return k.trying
}

// tried puts a call last that has to be tried again, and forgets any other.
// False: none waits any more.
func (k *kept) tried(call *keptCall, err error, again bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trying = nil
	if again {
		call.err = err
		k.waiting = append(k.waiting, call)
	} else {
		k.bytes -= call.weight
	}
	return !k.ended()
}

// ended says that none waits, and leaves the goroutine to end.
func (k *kept) ended() bool {
	if len(k.waiting) > 0 {
		return false
	}
	k.waiting, k.idle = nil, nil
	k.stop()
	return true
}

// pause waits, or until Close hurries. False: ctx has ended.
func (k *kept) pause(ctx context.Context, wait time.Duration) bool {
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
func (k *kept) close(ctx context.Context) error {
	k.mu.Lock()
	k.closed = true
	idle, stop := k.idle, k.stop
	k.mu.Unlock()
	if idle == nil {
		return nil
	}
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
	if k.trying != nil {
		left = append(left, k.trying)
	}
	k.waiting, k.trying, k.bytes = nil, nil, 0
	k.mu.Unlock()
	refunds := 0
	for _, call := range left {
		k.report(call, fmt.Errorf("%w: %w", errClosed, call.err))
		if !call.forget {
			refunds++
		}
	}
	switch {
	case refunds > 0:
		return fmt.Errorf("refunds that were not delivered: %d: %w", refunds, context.Cause(ctx))
	case len(left) > 0:
		return fmt.Errorf("reservations without a caller that hold until their leases end: up to %d: %w", len(left), context.Cause(ctx))
	}
	return nil
}
