package reservation

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/budgetd/budgetd/ledger"
)

// SweepInterval is how often a Sweeper looks: with it, what a crashed caller
// held is back well within a second after the lease's end.
const SweepInterval = 250 * time.Millisecond

// sweepBatch is how many closings one Sweep hands out.
const sweepBatch = 256

// Sweeper ends the leases of idle accounts, finishes closings that a broker
// left behind, and notices when the engine has lost its data: any node may do
// it, any number of times.
type Sweeper struct {
	broker *Broker
	rest   ledgerRest
}

// NewSweeper makes a Sweeper that uses the broker's engine and ledger.
func NewSweeper(b *Broker) *Sweeper { return &Sweeper{broker: b} }

// Bounds of the closings that one Sweeper finishes at once.
const (
	finishBatches = 4                      // Sweeps whose closings are under way
	finishWorkers = 64                     // closings of one Sweep under way
	finishWait    = 100 * time.Millisecond // how long a Sweep waits for room; then its closings are due again by themselves
	sweepDeadline = 2 * time.Second        // one visit of the engine, which looks at many accounts
)

// Run sweeps every [SweepInterval] until ctx ends. Ending leases never waits
// for the ledger.
func (s *Sweeper) Run(ctx context.Context) {
	var finishing sync.WaitGroup
	defer finishing.Wait()
	restore := func() {
		if s.broker.restores.waits() {
			finishing.Go(func() { s.broker.restores.run(ctx) })
		}
	}
	room := make(chan struct{}, finishBatches)
	ticker := time.NewTicker(SweepInterval)
	defer ticker.Stop()
	down := false
	for {
		for again := true; again; {
			answer, err := s.visit(ctx)
			if failed := err != nil && ctx.Err() == nil; failed != down {
				down = failed
				if failed {
					s.broker.config.Logger.Warn("sweeping fails; leases of idle accounts wait", "error", err)
				} else {
					s.broker.config.Logger.Info("sweeping works again")
				}
			}
			if len(answer.Pending) > 0 {
				s.finishApart(ctx, answer.Pending, room, &finishing)
			}
			restore()
			// More without any progress would be the same again at once.
			again = err == nil && answer.More && (answer.Expired > 0 || len(answer.Pending) > 0)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *Sweeper) finishApart(ctx context.Context, pending []Pending, room chan struct{}, finishing *sync.WaitGroup) {
	select {
	case room <- struct{}{}:
	case <-time.After(finishWait):
		return
	case <-ctx.Done():
		return
	}
	finishing.Go(func() {
		defer func() { <-room }()
		_ = s.finish(ctx, pending) // counted and, where an operator must know, logged
	})
}

// Sweep does one round: ends leases, brings back open reservations if the engine
// has lost its data, posts the closings that wait and confirms them. It reports
// whether more was due. What fails is due again by itself, and keeps nothing
// else from being finished. While the ledger is known to be away nothing is
// posted, and that is no error.
func (s *Sweeper) Sweep(ctx context.Context) (more bool, err error) {
	answer, err := s.visit(ctx)
	if err != nil {
		return false, err
	}
	s.broker.restores.run(ctx)
	return answer.More, s.finish(ctx, answer.Pending)
}

// visit ends leases and takes the closings that wait for the ledger.
func (s *Sweeper) visit(ctx context.Context) (SweepAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepDeadline)
	defer cancel()
	answer, err := s.broker.Store.Sweep(ctx, sweepBatch)
	if err != nil {
		s.broker.metrics.sweepsFailed.Inc()
	}
	s.broker.restores.saw(answer.Epoch)
	s.broker.registry.trim(s.broker.now())
	s.broker.metrics.reclaimed(answer.Expired)
	return answer, err
}

// finish posts and confirms closings, each by a call of its own: the group
// commit makes few transactions of them, and one that the ledger refuses holds
// up no other. While the ledger is away one closing now and then finds out
// whether it is back; the rest is due again by itself.
func (s *Sweeper) finish(ctx context.Context, pending []Pending) error {
	if len(pending) == 0 {
		return nil
	}
	switch now := s.broker.config.Now(); s.rest.allows(now) {
	case restOver:
		err := s.finishOne(ctx, pending[0])
		if s.rest.note(now, err); errors.Is(err, ledger.ErrUnavailable) {
			return nil
		}
		pending = pending[1:]
	case resting:
		return nil
	}
	workers := errgroup.Group{}
	workers.SetLimit(finishWorkers)
	var mu sync.Mutex
	var failed error
	for _, p := range pending {
		workers.Go(func() error {
			err := s.finishOne(ctx, p)
			s.rest.note(s.broker.config.Now(), err)
			if err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
			return nil
		})
	}
	_ = workers.Wait()
	if failed != nil {
		s.broker.metrics.sweepsFailed.Inc()
	}
	return failed
}

func (s *Sweeper) finishOne(ctx context.Context, p Pending) error {
	b := s.broker
	token, raw, closing, err := b.pendingClosing(p)
	if err != nil {
		b.metrics.unreadable.Inc()
		b.config.Logger.Error("a closing that waits for the ledger can't be read", "account", p.Account, "reservation", p.ID.String(), "error", err)
		return nil // trying again does not help
	}
	ctx, cancel := context.WithTimeout(ctx, b.config.LedgerDeadline)
	defer cancel()
	verdicts, err := b.poster().Append(ctx, []ledger.Closing{closing})
	if err != nil {
		if !errors.Is(err, ledger.ErrUnavailable) && ctx.Err() == nil {
			b.metrics.refusedClosings.Inc()
			b.config.Logger.Error("the ledger refuses a closing", "account", p.Account, "reservation", p.ID.String(), "error", err)
		}
		return err
	}
	b.observe(verdicts[0].Usage)
	job := confirmation{token: token, raw: raw, verdict: verdicts[0]}
	if !b.confirms.confirm(ctx, job) {
		return errors.New("the engine did not take a confirmation")
	}
	b.metrics.finished(verdicts[0].Rank)
	return nil
}

func (b *Broker) pendingClosing(pending Pending) (token *reservationToken, raw []byte, closing ledger.Closing, err error) {
	if token, raw, err = openStored(pending.Record.Token, b.Keys); err != nil {
		return nil, nil, ledger.Closing{}, err
	}
	closing, err = token.closingOf(pending.Record)
	return token, raw, closing, err
}
