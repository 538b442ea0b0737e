package spool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

// Spool is a ledger that goes on acknowledging closings while the one behind it
// is away. What is not about single closings goes to the ledger behind as it
// is. It is safe for concurrent use; Run drains it.
type Spool struct {
	ledger.Ledger // the one behind
	config        Config
	file          *file
	held          *held
	metrics       *metrics

	turn     chan struct{} // holds a token while somebody writes to the file
	failing  bool          // the last write failed; of who has the turn
	draining chan struct{} // holds a token while somebody drains
	work     chan struct{} // has a token when Run has something to look at

	away      atomic.Bool
	awaySince atomic.Int64 // nanoseconds since 1970

	mu     sync.Mutex
	queue  []*keeping
	queued int // closings in queue
	closed bool
	calls  sync.WaitGroup
}

var _ ledger.Ledger = (*Spool)(nil)

// Open opens the spool in a file. What the file still has from an earlier
// process is drained by Run. The error says which field of config is out of its
// bounds, or what is wrong with the file.
func Open(ctx context.Context, config Config) (_ *Spool, err error) {
	config, err = config.withDefaults()
	if err != nil {
		return nil, err
	}
	f, err := openFile(ctx, config.Path, config.MaxBytes)
	if err != nil {
		return nil, err
	}
	s := &Spool{
		Ledger: config.Next, config: config, file: f, held: newHeld(),
		turn: make(chan struct{}, 1), draining: make(chan struct{}, 1), work: make(chan struct{}, 1),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if err := f.scan(ctx, s.held.add); err != nil {
		return nil, f.failed("read closings", err)
	}
	filed, err := f.filed(ctx)
	if err != nil {
		return nil, f.failed("read closings", err)
	}
	if err := f.reserve.take(); err != nil {
		config.Logger.Warn("the spool's disk has little room", "error", err)
	}
	s.metrics = newMetrics(s)
	s.metrics.filedRows.Set(float64(filed))
	if config.Metrics != nil {
		if err := s.metrics.register(config.Metrics); err != nil {
			return nil, fmt.Errorf("spool: %w", err)
		}
	}
	if waiting := s.held.count(); waiting > 0 {
		config.Logger.Info("the spool has closings of before the start", "closings", waiting)
		s.wake()
	}
	return s, nil
}

// enter counts a call in, unless the spool is closed. The caller calls
// s.calls.Done.
func (s *Spool) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ledger.ErrClosed
	}
	s.calls.Add(1)
	return nil
}

// Append implements [ledger.Appender]. Closings that the ledger does not answer
// for are spooled: their verdicts say so, name the winner as far as this node
// knows, and have no usage. The closings of one call are spooled together or
// not at all. Back-pressure (ledger.ErrBusy) and refusals are the caller's, as
// without a spool.
func (s *Spool) Append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	if err := ledger.ValidateAll(closings); err != nil {
		return nil, err
	}
	if len(closings) == 0 {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: append %d closings: %w", ledger.ErrUnavailable, len(closings), err)
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.calls.Done()

	if s.away.Load() {
		return s.keep(ctx, closings, false)
	}
	if s.held.mayHave(closings) {
		// Their order counts: what came first is in the file.
		verdicts, err := s.keep(ctx, closings, true)
		if verdicts != nil || err != nil {
			return verdicts, err
		}
	}
	verdicts, err := s.ask(ctx, closings)
	if err == nil || !isAway(err) || ctx.Err() != nil {
		return verdicts, err
	}
	s.lost(err)
	return s.keep(ctx, closings, false)
}

// ask appends to the ledger behind, within the patience. A caller that has
// hardly any time says nothing about the ledger: it waits to its own end.
func (s *Spool) ask(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	patience := s.config.Patience
	if deadline, ok := ctx.Deadline(); ok {
		if patience = min(patience, time.Until(deadline)/2); patience < MinPatience {
			return s.Ledger.Append(ctx, closings)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.Ledger.Append(ctx, closings)
}

// isAway says whether an error means that the ledger behind does not answer.
func isAway(err error) bool {
	return errors.Is(err, ledger.ErrUnavailable) && !errors.Is(err, ledger.ErrBusy) &&
		!errors.Is(err, ledger.ErrClosed) && !errors.Is(err, errFile)
}

// lost notes that the ledger does not answer.
func (s *Spool) lost(err error) {
	if s.away.CompareAndSwap(false, true) {
		s.awaySince.Store(time.Now().UnixNano())
		s.config.Logger.Warn("the ledger does not answer: closings are kept on this node's disk until it does", "spool", s.config.Path, "error", err)
	}
	s.wake()
}

// back notes that the ledger answers again.
func (s *Spool) back() {
	if s.away.CompareAndSwap(true, false) {
		away := time.Duration(time.Now().UnixNano() - s.awaySince.Load())
		s.config.Logger.Info("the ledger answers again", "after", away.Round(time.Millisecond).String(), "closings_to_drain", s.held.count())
	}
}

// Away says whether the ledger behind does not answer, as far as is known: it
// is asked again at most a second after it is back.
func (s *Spool) Away() bool { return s.away.Load() }

// Waiting returns how many closings are in the file and not in the ledger.
func (s *Spool) Waiting() int { return s.held.count() }

// wake has Run look.
func (s *Spool) wake() {
	select {
	case s.work <- struct{}{}:
	default:
	}
}

// Close refuses new calls, waits for those under way, and closes the file. The
// ledger behind stays open. What is in the file waits for the next start.
func (s *Spool) Close() error {
	s.mu.Lock()
	already := s.closed
	s.closed = true
	s.mu.Unlock()
	s.calls.Wait()
	if already {
		return nil
	}
	if err := s.file.close(); err != nil {
		return fmt.Errorf("close the spool: %w", err)
	}
	return nil
}
