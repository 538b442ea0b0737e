package ledger

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of [GroupConfig].
const (
	DefaultMaxBatch      = 512
	DefaultMaxQueue      = 8192
	DefaultParallel      = 2
	DefaultAppendTimeout = 10 * time.Second
)

// MaxParallel is how many transactions a [GroupCommitter] has under way at most.
const MaxParallel = 8

// GroupConfig is how a [GroupCommitter] gathers closings. The zero value takes
// the defaults.
type GroupConfig struct {
	// MaxBatch is how many closings one transaction takes, 1 to MaxAppend; 0 is
	// DefaultMaxBatch. The closings of one call stay together, also where they
	// are more.
	MaxBatch int
	// MaxQueue is how many closings may wait, at least MaxBatch; 0 is
	// DefaultMaxQueue. A call that finds no room fails with ErrBusy at once.
	MaxQueue int
	// Parallel is how many transactions may be under way, 1 to MaxParallel; 0 is
	// DefaultParallel. A further one begins only when a full batch waits: while
	// one waits for the disk another is written, and few callers are not spread
	// over more transactions than they need.
	Parallel int
	// AppendTimeout bounds one transaction; 0 is DefaultAppendTimeout.
	AppendTimeout time.Duration
	// Metrics is where the committer registers its metrics; nil is nowhere.
	Metrics prometheus.Registerer
}

// GroupCommitter turns concurrent Appends into few transactions of many
// closings: a commit costs a flush of the disk however many closings it has. It
// is an [Appender], safe for concurrent use.
//
// A call waits until the transaction that has its closings is committed. When
// its context ends first it returns an error that wraps [ErrUnavailable] and
// the context's, and its closings are written all the same: they must not be
// changed after the call, however it ended.
//
// The closings of one call are written together or not at all. A call whose
// closings the ledger refuses fails alone: it is found by splitting the batch.
type GroupCommitter struct {
	next    Appender
	config  GroupConfig
	metrics groupMetrics

	mu       sync.Mutex
	queue    []*waiting
	queued   int // closings in queue
	underway int // transactions
	last     lastBatch
	closed   bool
	changed  chan struct{} // has a token when there may be something to take
	stopped  chan struct{} // closed when the last batch is done
}

var _ Appender = (*GroupCommitter)(nil)

// lastBatch is the transaction that ended last.
type lastBatch struct {
	took     time.Duration
	closings int // of it, and of all that waited when it ended
}

// waiting is one call that waits for its batch.
type waiting struct {
	closings []Closing
	done     chan outcome // has room for the one outcome
}

type outcome struct {
	verdicts []Verdict
	err      error
}

// NewGroupCommitter starts a committer in front of an engine. Close it before
// the engine. The error says which field of config is out of its bounds, or
// that the metrics are registered already.
func NewGroupCommitter(next Appender, config GroupConfig) (*GroupCommitter, error) {
	if config.MaxBatch == 0 {
		config.MaxBatch = DefaultMaxBatch
	}
	if config.MaxQueue == 0 {
		config.MaxQueue = max(DefaultMaxQueue, config.MaxBatch)
	}
	if config.Parallel == 0 {
		config.Parallel = DefaultParallel
	}
	if config.AppendTimeout == 0 {
		config.AppendTimeout = DefaultAppendTimeout
	}
	switch {
	case config.MaxBatch < 1 || config.MaxBatch > MaxAppend:
		return nil, fmt.Errorf("group commit: max_batch: %d is not between 1 and %d", config.MaxBatch, MaxAppend)
	case config.MaxQueue < config.MaxBatch:
		return nil, fmt.Errorf("group commit: max_queue: %d is less than max_batch, %d", config.MaxQueue, config.MaxBatch)
	case config.Parallel < 1 || config.Parallel > MaxParallel:
		return nil, fmt.Errorf("group commit: parallel: %d is not between 1 and %d", config.Parallel, MaxParallel)
	case config.AppendTimeout < 0:
		return nil, fmt.Errorf("group commit: append_timeout: %s is negative", config.AppendTimeout)
	}
	g := &GroupCommitter{
		next: next, config: config,
		changed: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	g.metrics = newGroupMetrics(g)
	if config.Metrics != nil {
		if err := g.metrics.register(config.Metrics); err != nil {
			return nil, fmt.Errorf("group commit: %w", err)
		}
	}
	go g.run()
	return g, nil
}

// Append implements [Appender]. It fails with [ErrBusy] when the queue has no
// room and with [ErrClosed] after Close; nothing was written then.
func (g *GroupCommitter) Append(ctx context.Context, closings []Closing) ([]Verdict, error) {
	verdicts, err := g.append(ctx, closings)
	g.metrics.countError(err)
	return verdicts, err
}

func (g *GroupCommitter) append(ctx context.Context, closings []Closing) ([]Verdict, error) {
	if err := ValidateAll(closings); err != nil {
		return nil, err
	}
	if len(closings) == 0 {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, abandoned(err)
	}
	w := &waiting{closings: closings, done: make(chan outcome, 1)}
	if err := g.enqueue(w); err != nil {
		return nil, err
	}
	select {
	case o := <-w.done:
		return o.verdicts, o.err
	case <-ctx.Done():
		return nil, abandoned(ctx.Err())
	}
}

// errAbandoned says that a caller stopped waiting.
var errAbandoned = errors.New("stopped waiting for the ledger")

func abandoned(err error) error {
	return fmt.Errorf("%w: %w: %w", ErrUnavailable, errAbandoned, err)
}

func (g *GroupCommitter) enqueue(w *waiting) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return ErrClosed
	case g.queued > 0 && g.queued+len(w.closings) > g.config.MaxQueue:
		return ErrBusy
	}
	before := g.queued
	g.queue = append(g.queue, w)
	g.queued += len(w.closings)
	// Wake the committer for the first that waits and for a batch that is full.
	full := before < g.config.MaxBatch && g.queued >= g.config.MaxBatch
	if len(g.queue) == 1 || full {
		g.signal()
	}
	return nil
}

func (g *GroupCommitter) signal() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// Close refuses new calls, commits what was accepted, and returns when that is
// done. Once it is called, the first transaction that the ledger does not
// answer ends the waiting: what is still queued fails with the same error. The
// engine stays open.
func (g *GroupCommitter) Close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.signal()
	<-g.stopped
	return nil
}

func (g *GroupCommitter) run() {
	defer close(g.stopped)
	var underway sync.WaitGroup
	defer underway.Wait()
	for batch := g.take(); batch != nil; batch = g.take() {
		underway.Go(func() {
			begun := time.Now()
			err := g.commit(batch)
			ended := lastBatch{closings: closingsOf(batch), took: time.Since(begun)}
			if err != nil {
				ended.took = 0 // says how long a failure takes, and nobody should wait for that
			}
			g.ended(ended, err)
		})
	}
}

// ended notes that a transaction has ended.
func (g *GroupCommitter) ended(batch lastBatch, err error) {
	g.mu.Lock()
	g.underway--
	batch.closings += g.queued
	g.last = batch
	g.mu.Unlock()
	if errors.Is(err, ErrUnavailable) {
		g.failIfClosed(err)
	}
	g.signal()
}

// take waits for calls and returns a batch of them, or nil at the end.
func (g *GroupCommitter) take() []*waiting {
	for {
		g.mu.Lock()
		queued, closed, last := g.queued, g.closed, g.last
		idle := g.underway == 0
		full := g.underway < g.config.Parallel && queued >= g.config.MaxBatch
		g.mu.Unlock()
		switch {
		case queued > 0 && (idle || full):
			if !closed {
				g.gather(last)
			}
			return g.cut()
		case closed && queued == 0:
			return nil
		}
		<-g.changed
	}
}

// gather gives others the time to join a batch that has begun to queue.
func (g *GroupCommitter) gather(last lastBatch) {
	// Those whose batch was committed just now have been woken but may not have
	// run yet, and busy callers come again at once. Without this, the first to
	// run would have a transaction almost to themselves, every other time. It
	// ends when all are back or nobody comes any more, and costs a tenth of a
	// transaction at most, of one of gatherMost where it took longer.
	const gatherMost = 10 * time.Millisecond
	took := min(last.took, gatherMost)
	enough := min(last.closings, g.config.MaxBatch)
	begun := time.Now()
	for grown, before := begun, 0; ; runtime.Gosched() {
		queued, now := g.waitingClosings(), time.Now()
		if queued > before {
			grown, before = now, queued
		}
		if queued >= enough || now.Sub(begun) >= took/10 || now.Sub(grown) >= took/50 {
			return
		}
	}
}

func (g *GroupCommitter) waitingClosings() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queued
}

// cut takes the first calls off the queue, up to MaxBatch closings, but one
// call at least if there is one.
func (g *GroupCommitter) cut() []*waiting {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls, closings := 0, 0
	for _, w := range g.queue {
		if calls > 0 && closings+len(w.closings) > g.config.MaxBatch {
			break
		}
		calls++
		closings += len(w.closings)
	}
	if calls == 0 {
		return nil // failIfClosed was here
	}
	batch := g.queue[:calls:calls]
	g.underway++
	g.queue = g.queue[calls:]
	if len(g.queue) == 0 {
		g.queue = nil // let go of the memory of a burst
	}
	g.queued -= closings
	return batch
}

func closingsOf(batch []*waiting) (closings int) {
	for _, w := range batch {
		closings += len(w.closings)
	}
	return closings
}

// commit appends a batch and answers its calls. It returns the error of the
// last transaction.
func (g *GroupCommitter) commit(batch []*waiting) error {
	closings := batch[0].closings
	if len(batch) > 1 {
		closings = make([]Closing, 0, g.config.MaxBatch)
		for _, w := range batch {
			closings = append(closings, w.closings...)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.config.AppendTimeout)
	begun := time.Now()
	verdicts, err := g.next.Append(ctx, closings)
	cancel()
	if err == nil && len(verdicts) != len(closings) {
		err = fmt.Errorf("%w: %d verdicts for %d closings", ErrUnavailable, len(verdicts), len(closings))
	}
	g.metrics.countBatch(len(closings), time.Since(begun), verdicts, err)

	if err != nil && !errors.Is(err, ErrUnavailable) && len(batch) > 1 {
		// Nothing was written. Halve the batch until the call at fault is alone.
		half := len(batch) / 2
		_ = g.commit(batch[:half]) // its calls are answered
		return g.commit(batch[half:])
	}
	at := 0
	for _, w := range batch {
		o := outcome{err: err}
		if err == nil {
			next := at + len(w.closings)
			o.verdicts = verdicts[at:next:next]
			at = next
		}
		w.done <- o
	}
	return err
}

// failIfClosed answers all that wait with the error, if Close was called.
func (g *GroupCommitter) failIfClosed(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		return
	}
	for _, w := range g.queue {
		w.done <- outcome{err: err}
	}
	g.queue, g.queued = nil, 0
}
