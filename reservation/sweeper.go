package reservation

import (
	"context"
	"errors"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

// SweepInterval is how often a Sweeper looks: with it, what a crashed caller
// held is back well within a second after the lease's end.
const SweepInterval = 250 * time.Millisecond

// sweepBatch is how many closings one Sweep hands out.
const sweepBatch = 256

// Sweeper ends the leases of idle accounts, and finishes closings that a broker
// left behind: any node may do it, any number of times.
type Sweeper struct {
	broker *Broker
}

// NewSweeper makes a Sweeper that uses the broker's engine and ledger.
func NewSweeper(b *Broker) *Sweeper { return &Sweeper{broker: b} }

// Run sweeps every [SweepInterval] until ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
	ticker := time.NewTicker(SweepInterval)
	defer ticker.Stop()
	down := false
	for {
		for more := true; more; {
			var err error
			more, err = s.Sweep(ctx)
			if failed := err != nil && ctx.Err() == nil; failed != down {
				down = failed
				if failed {
					s.broker.config.Logger.Warn("sweeping fails; leases of idle accounts wait", "error", err)
				} else {
					s.broker.config.Logger.Info("sweeping works again")
				}
			}
			if err != nil {
				break
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Sweep does one round: ends leases, posts the closings that wait and confirms
// them. It reports whether more was due. After an error the rest is due again
// by itself.
func (s *Sweeper) Sweep(ctx context.Context) (more bool, err error) {
	b := s.broker
	sweepCtx, cancel := context.WithTimeout(ctx, sweepDeadline)
	answer, err := b.Store.Sweep(sweepCtx, sweepBatch)
	cancel()
	if err != nil {
		b.metrics.sweepsFailed.Inc()
		return false, err
	}
	b.metrics.reclaimed(answer.Expired)
	jobs := make([]confirmation, 0, len(answer.Pending))
	closings := make([]ledger.Closing, 0, len(answer.Pending))
	for _, pending := range answer.Pending {
		token, closing, err := b.pendingClosing(pending)
		if err != nil {
			b.metrics.unreadable.Inc()
			b.config.Logger.Error("a closing that waits for the ledger can't be read", "account", pending.Account, "reservation", pending.ID.String(), "error", err)
			continue
		}
		jobs = append(jobs, confirmation{token: token, raw: pending.Record.Token})
		closings = append(closings, closing)
	}
	if len(closings) == 0 {
		return answer.More, nil
	}
	appendCtx, cancel := context.WithTimeout(ctx, b.config.LedgerDeadline)
	defer cancel()
	verdicts, err := b.Ledger.Append(appendCtx, closings)
	if err != nil {
		b.metrics.sweepsFailed.Inc()
		return false, err
	}
	for i, job := range jobs {
		job.verdict = verdicts[i]
		if !b.confirms.confirm(ctx, job) {
			return false, errors.New("the engine did not take a confirmation")
		}
		b.metrics.finished(verdicts[i].Rank)
	}
	return answer.More, nil
}

// sweepDeadline bounds one visit of the engine, which looks at many accounts.
const sweepDeadline = 2 * time.Second

func (b *Broker) pendingClosing(pending Pending) (*reservationToken, ledger.Closing, error) {
	token, err := openToken(pending.Record.Token, b.Keys)
	if err != nil {
		return nil, ledger.Closing{}, err
	}
	closing, err := token.closingOf(pending.Record)
	return token, closing, err
}
