package reservation

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

// confirmation is a ledger's verdict on its way to the engine.
type confirmation struct {
	token   *reservationToken
	raw     []byte
	verdict ledger.Verdict
	tries   int // that failed so far
}

// confirmWorkers is how many confirmations are under way at once: enough to
// fill a pipelined connection, few enough to leave callers their share.
const confirmWorkers = 8

// A confirmation that fails is tried again: the engine may be away for a while.
const (
	confirmPause = time.Second
	maxConfirms  = 60
)

// confirmer brings verdicts to the engine off the callers' path. A record that
// waits for the ledger is finished by a Sweeper when its confirmation is lost.
// A Refund that went around a silent engine after its expiry was confirmed has
// no such record: only the tries here, or the next closing that meets the same
// counter, bring its usage to the engine.
type confirmer struct {
	broker *Broker
	ctx    context.Context
	queue  chan confirmation
	later  atomic.Int64 // confirmations that wait for another try
	mu     sync.RWMutex // guards closed against a send on a closed channel
	closed bool
	done   sync.WaitGroup
	stop   context.CancelFunc
}

func startConfirmer(b *Broker) *confirmer {
	ctx, stop := context.WithCancel(context.Background())
	c := &confirmer{broker: b, ctx: ctx, queue: make(chan confirmation, b.config.ConfirmQueue), stop: stop}
	for range confirmWorkers {
		c.done.Go(func() {
			for job := range c.queue {
				if !c.confirm(ctx, job) {
					c.again(job)
				}
			}
		})
	}
	return c
}

func (c *confirmer) enqueue(job confirmation) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return
	}
	if c.broker.config.ConfirmInCall && job.tries == 0 {
		if !c.confirm(c.ctx, job) {
			c.again(job)
		}
		return
	}
	select {
	case c.queue <- job:
	default:
		c.broker.metrics.confirmsDropped.Inc()
	}
}

// again has a failed confirmation tried once more after a pause.
func (c *confirmer) again(job confirmation) {
	if job.tries++; job.tries == maxConfirms || c.later.Load() >= int64(cap(c.queue)) {
		c.broker.metrics.confirmsDropped.Inc()
		return
	}
	c.later.Add(1)
	time.AfterFunc(confirmPause, func() {
		c.later.Add(-1)
		c.enqueue(job)
	})
}

func (c *confirmer) close(ctx context.Context) error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.queue)
	}
	c.mu.Unlock()
	drained := make(chan struct{})
	go func() { c.done.Wait(); close(drained) }()
	defer c.stop()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		c.stop()
		<-drained // every step left fails at once now
		return ctx.Err()
	}
}

// confirm tells the engine, within one deadline a try. It reports whether the
// engine took it.
func (c *confirmer) confirm(ctx context.Context, job confirmation) bool {
	b := c.broker
	request, err := job.token.confirmation(job.raw, job.verdict)
	if err != nil {
		b.metrics.unreadable.Inc()
		b.config.Logger.Error("a closing in the ledger can't be confirmed", "reservation", job.token.ID.String(), "error", err)
		return false
	}
	verdict, err := c.ask(ctx, request)
	if err == nil && verdict == ConfirmUnknown {
		request.Holds, request.Kin = job.token.holds(), job.token.Kin
		_, err = c.ask(ctx, request)
	}
	if err != nil {
		b.metrics.confirmsFailed.Inc()
		return false
	}
	b.told.note(job.verdict.Usage)
	return true
}

func (c *confirmer) ask(ctx context.Context, request ConfirmRequest) (ConfirmVerdict, error) {
	ctx, cancel := context.WithTimeout(ctx, c.broker.config.Deadline)
	defer cancel()
	return c.broker.Store.Confirm(ctx, request)
}
