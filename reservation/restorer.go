package reservation

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/budgetd/budgetd/concurrency"
)

// restoreWorkers is how many reservations are brought back at once: callers'
// own Reserves, which seed the quotas anew at that moment, come first.
const restoreWorkers = 16

// restorer brings back the open reservations of the registry when the engine
// has lost its data.
type restorer struct {
	broker *Broker

	mu    sync.Mutex
	epoch string       // of the engine's data, as last seen; "" at first
	due   []registered // to be brought back, the oldest first
	busy  bool         // a run is under way
	begun time.Time    // when the loss was noticed
	tally map[RestoreVerdict]int
}

func newRestorer(b *Broker) *restorer { return &restorer{broker: b} }

// saw notes the epoch of the engine's data. When it is another than before,
// what this broker knows to be open has to be brought back.
func (r *restorer) saw(epoch string) {
	if epoch == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := r.epoch != "" && r.epoch != epoch
	r.epoch = epoch
	if !lost {
		return
	}
	b := r.broker
	b.told.forget()
	r.due = b.registry.open(b.now())
	r.begun, r.tally = b.config.Now(), map[RestoreVerdict]int{}
	b.metrics.losses.Inc()
	b.config.Logger.Warn("the engine lost data or was rolled back; open reservations of this broker are brought back", "open", len(r.due))
}

// waits says whether anything is to be brought back and nobody does it.
func (r *restorer) waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.due) > 0 && !r.busy
}

// run brings back what is due. What fails stays due.
func (r *restorer) run(ctx context.Context) {
	r.mu.Lock()
	if r.busy || len(r.due) == 0 {
		r.mu.Unlock()
		return
	}
	epoch, due := r.epoch, r.due
	r.busy, r.due = true, nil
	r.mu.Unlock()

	// Envelopes before what was made in them, so that these are paid by them again.
	due, inEnvelopes := r.broker.partKin(due)
	workers := errgroup.Group{}
	workers.SetLimit(restoreWorkers)
	var mu sync.Mutex
	var failed []registered
	tally := map[RestoreVerdict]int{}
	for i, e := range due {
		if ctx.Err() != nil {
			mu.Lock()
			failed = append(failed, due[i:]...)
			mu.Unlock()
			break
		}
		workers.Go(func() error {
			verdict, err := r.broker.bringBack(ctx, &e)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				tally[verdict]++
			case errors.Is(err, ErrUnavailable):
				failed = append(failed, e)
			}
			return nil
		})
	}
	_ = workers.Wait()
	for _, e := range inEnvelopes { // in the order in which they were made
		verdict, err := r.broker.bringBack(ctx, &e)
		switch {
		case err == nil:
			tally[verdict]++
		case errors.Is(err, ErrUnavailable):
			failed = append(failed, e)
		}
	}
	r.done(epoch, failed, tally)
}

func (r *restorer) done(epoch string, failed []registered, tally map[RestoreVerdict]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = false
	if r.epoch != epoch {
		return // lost again meanwhile: all of it is due anew
	}
	r.due = failed
	for verdict, n := range tally {
		r.tally[verdict] += n
	}
	if len(failed) == 0 {
		b := r.broker
		b.config.Logger.Info("the open reservations of this broker are in the engine again",
			"restored", r.tally[Restored], "known", r.tally[RestoreKnown], "ended", r.tally[RestoreEnded],
			"took", b.config.Now().Sub(r.begun).String())
	}
}

// bringBack restores one reservation of the registry.
func (b *Broker) bringBack(ctx context.Context, e *registered) (RestoreVerdict, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepDeadline)
	defer cancel()
	now, open := b.registry.find(e.id)
	if !open {
		return RestoreEnded, nil // closed meanwhile
	}
	*e = now
	expiresAt := time.UnixMicro(e.expiresAt).UTC()
	token, err := openToken(e.raw, b.Keys)
	if err != nil {
		b.metrics.unreadable.Inc()
		return RestoreEnded, nil // trying again does not help
	}
	verdict, err := b.restore(ctx, token, e, expiresAt)
	if err != nil || verdict != RestoreKnown || !e.renewed {
		return verdict, err
	}
	// Another broker may have been first with a lease end that it knew before
	// this one moved it.
	left := expiresAt.Sub(b.now()).Truncate(time.Microsecond)
	if left < concurrency.MinLease {
		return verdict, nil
	}
	_, err = b.Store.Renew(ctx, RenewRequest{Account: token.Account, ID: token.ID, Lease: min(left, concurrency.MaxLease)})
	return verdict, engineError(err)
}

// restore asks the engine to hold a reservation again.
func (b *Broker) restore(ctx context.Context, token *reservationToken, e *registered, expiresAt time.Time) (RestoreVerdict, error) {
	var startAt time.Time
	if e.startAt != 0 && e.startAt <= expiresAt.UnixMicro() {
		startAt = time.UnixMicro(e.startAt).UTC()
	}
	verdict, err := b.Store.Restore(ctx, RestoreRequest{
		Account: token.Account, ID: token.ID, Holds: token.holds(), StartAt: startAt, ExpiresAt: expiresAt,
		Retention: token.Retention, Key: e.key, Body: e.body, Token: e.raw, Kin: token.Kin,
	})
	if err = engineError(err); err == nil {
		b.metrics.restored(verdict.String())
		return verdict, nil
	}
	b.metrics.restored("failed")
	if !errors.Is(err, ErrUnavailable) {
		b.config.Logger.Error("an open reservation can't be brought back", "account", token.Account, "reservation", token.ID.String(), "error", err)
	}
	return 0, err
}

// String returns the verdict in lower case, as metrics show it.
func (v RestoreVerdict) String() string {
	switch v {
	case Restored:
		return "restored"
	case RestoreKnown:
		return "known"
	case RestoreEnded:
		return "ended"
	}
	return "unknown"
}
