package spool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/budgetd/budgetd/ledger"
)

const (
	// keepBatch is how many closings one transaction of the file takes.
	keepBatch = 512
	// keepQueue is how many closings may wait for the file.
	keepQueue = 8192
)

// keeping is one Append that goes to the file.
type keeping struct {
	closings []ledger.Closing
	token    []byte
	onlyHeld bool // write only if one of the reservations is in the file
	done     chan kept
}

// kept is the outcome of a keeping.
type kept struct {
	verdicts []ledger.Verdict // nil with onlyHeld when none was in the file
	err      error
}

// keep writes closings to the file and returns the spool's verdicts. Calls that
// wait for the file are written together: whoever gets the turn writes for all.
func (s *Spool) keep(ctx context.Context, closings []ledger.Closing, onlyHeld bool) ([]ledger.Verdict, error) {
	token := ledger.TokenOf(ctx)
	if len(token) > ledger.MaxTokenBytes {
		return nil, fmt.Errorf("%w: token: has %d bytes, at most %d are kept", ledger.ErrInvalid, len(token), ledger.MaxTokenBytes)
	}
	k := &keeping{closings: closings, token: token, onlyHeld: onlyHeld, done: make(chan kept, 1)}
	if !s.enqueue(k) {
		return nil, ledger.ErrBusy
	}
	for {
		select {
		case o := <-k.done:
			return o.verdicts, o.err
		case s.turn <- struct{}{}:
			s.write()
			<-s.turn
		case <-ctx.Done():
			s.dequeue(k)
			return nil, fmt.Errorf("%w: stopped waiting for the spool: %w", ledger.ErrUnavailable, ctx.Err())
		}
	}
}

func (s *Spool) enqueue(k *keeping) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued > 0 && s.queued+len(k.closings) > keepQueue {
		return false
	}
	s.queue = append(s.queue, k)
	s.queued += len(k.closings)
	return true
}

// dequeue takes back a call that is not being written yet.
func (s *Spool) dequeue(k *keeping) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.queue, k); at >= 0 {
		s.queue = slices.Delete(s.queue, at, at+1)
		s.queued -= len(k.closings)
	}
}

// cut takes the first calls off the queue.
func (s *Spool) cut() []*keeping {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls, closings := 0, 0
	for _, k := range s.queue {
		if calls > 0 && closings+len(k.closings) > keepBatch {
			break
		}
		calls++
		closings += len(k.closings)
	}
	batch := s.queue[:calls:calls]
	s.queue = s.queue[calls:]
	if len(s.queue) == 0 {
		s.queue = nil // let go of the memory of a burst
	}
	s.queued -= closings
	return batch
}

// write writes the calls that wait first, in one transaction, and answers them.
// The caller has the turn.
func (s *Spool) write() {
	batch := s.cut()
	if len(batch) == 0 {
		return
	}
	var added []key
	verdicts := make([][]ledger.Verdict, len(batch))
	err := s.file.inWrite(func(tx *sql.Tx) error {
		w := writing{file: s.file, tx: tx, now: s.config.Now().UnixMicro()}
		for i, k := range batch {
			if k.onlyHeld {
				held, err := w.hasAny(k.closings)
				if err != nil {
					return err
				}
				if !held {
					continue
				}
			}
			for j := range k.closings {
				verdict, err := w.keep(&k.closings[j], k.token)
				if err != nil {
					return err
				}
				verdicts[i] = append(verdicts[i], verdict)
			}
		}
		added = w.added
		return nil
	})
	if err != nil {
		err = s.file.failed("keep a closing", err)
		s.metrics.failures.Inc()
		s.logFailure(err)
	} else {
		s.logFailure(nil)
		for _, k := range added {
			s.held.add(k)
		}
		s.metrics.spooled.Add(float64(len(added)))
		s.wake()
	}
	for i, k := range batch {
		if err != nil {
			k.done <- kept{err: err}
		} else {
			k.done <- kept{verdicts: verdicts[i]}
		}
	}
}

// logFailure logs the first of a row of failures, and their end.
func (s *Spool) logFailure(err error) {
	if failing := err != nil; failing != s.failing {
		s.failing = failing
		if failing {
			s.config.Logger.Error("the spool can't keep closings: Refunds are answered unavailable while the ledger is away", "error", err)
		} else {
			s.config.Logger.Info("the spool keeps closings again")
		}
	}
}

// writing is a transaction that keeps closings.
type writing struct {
	file  *file
	tx    *sql.Tx
	now   int64
	added []key
}

func (w *writing) find(k key) (row, bool, error) {
	r, err := scanRow(w.tx.Stmt(w.file.find).QueryRow(k.account, k.reservation[:], k.month).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return row{}, false, nil
	}
	return r, err == nil, err
}

func (w *writing) hasAny(closings []ledger.Closing) (bool, error) {
	for i := range closings {
		if _, found, err := w.find(keyOf(&closings[i])); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// keep writes the closing if its rank is higher than what stands, and returns
// what stands afterwards.
func (w *writing) keep(c *ledger.Closing, token []byte) (ledger.Verdict, error) {
	k := keyOf(c)
	stands, found, err := w.find(k)
	if err != nil {
		return ledger.Verdict{}, err
	}
	if found && c.Rank <= stands.closing.Rank {
		verdict := ledger.VerdictOf(&stands.closing)
		verdict.Spooled = true
		return verdict, nil
	}
	if found {
		if _, err := w.tx.Stmt(w.file.remove).Exec(stands.position); err != nil {
			return ledger.Verdict{}, err
		}
	} else {
		w.added = append(w.added, k)
	}
	values, err := (&row{closing: *c, token: token, spooledAt: w.now}).values()
	if err != nil {
		return ledger.Verdict{}, err
	}
	if _, err := w.tx.Stmt(w.file.insert).Exec(values...); err != nil {
		return ledger.Verdict{}, err
	}
	verdict := ledger.VerdictOf(c)
	verdict.Posted, verdict.Spooled = true, true
	return verdict, nil
}
