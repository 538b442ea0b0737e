// Package faultstore makes an engine fail: before a call, after it was
// committed, or slowly, at stated rates and from a seed. It shows whether what
// is built on an engine keeps its promises when the engine does not answer.
package faultstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/budgetd/budgetd/reservation"
)

// Config says how often what goes wrong. Rates are from 0 (never) to 1
// (always) and are drawn independently for each call.
type Config struct {
	Seed uint64 // the same seed and the same order of calls give the same faults

	Before float64 // the call fails and nothing is done
	After  float64 // the call is done, and its answer is lost
	Delay  float64 // the call waits before it is done

	// MaxDelay bounds a delay, which is drawn from 0 to it. A caller whose
	// context ends first gets an error, and nothing is done.
	MaxDelay time.Duration
}

// Store is an engine that fails. Its errors wrap reservation.ErrUnavailable, as
// those of an engine that did not answer. It is safe for concurrent use.
type Store struct {
	inner  reservation.Store
	config Config

	mu     sync.Mutex
	random *rand.Rand

	off                   atomic.Bool
	before, after, delays atomic.Int64
}

var _ reservation.Store = (*Store)(nil)

// New wraps an engine. A rate outside 0 to 1, or a delay without MaxDelay, is
// an error.
func New(inner reservation.Store, config Config) (*Store, error) {
	for _, rate := range []struct {
		name  string
		value float64
	}{{"Before", config.Before}, {"After", config.After}, {"Delay", config.Delay}} {
		if !(rate.value >= 0 && rate.value <= 1) { // and not a NaN
			return nil, fmt.Errorf("faultstore: %s: the rate %v is not from 0 to 1", rate.name, rate.value)
		}
	}
	if config.MaxDelay < 0 || config.Delay > 0 && config.MaxDelay == 0 {
		return nil, fmt.Errorf("faultstore: MaxDelay: %s; state how long a delay may be", config.MaxDelay)
	}
	return &Store{inner: inner, config: config, random: rand.New(rand.NewPCG(config.Seed, 0))}, nil
}

// SetEnabled turns the faults on (as at first) or off.
func (s *Store) SetEnabled(on bool) { s.off.Store(!on) }

// Faults are how many calls met what.
type Faults struct{ Before, After, Delays int64 }

// Faults returns how many calls failed before, after, and were delayed.
func (s *Store) Faults() Faults {
	return Faults{Before: s.before.Load(), After: s.after.Load(), Delays: s.delays.Load()}
}

// plan is what one call will meet.
type plan struct {
	before, after bool
	delay         time.Duration
}

// draw always draws as much, so that the faults of later calls do not depend
// on those of earlier ones.
func (s *Store) draw() plan {
	if s.off.Load() {
		return plan{}
	}
	s.mu.Lock()
	before, after, delay, part := s.random.Float64(), s.random.Float64(), s.random.Float64(), s.random.Float64()
	s.mu.Unlock()
	p := plan{before: before < s.config.Before, after: after < s.config.After}
	if delay < s.config.Delay {
		p.delay = time.Duration(part * float64(s.config.MaxDelay))
	}
	return p
}

// call does a call with what was drawn for it.
func call[A any](ctx context.Context, s *Store, name string, do func() (A, error)) (A, error) {
	var none A
	p := s.draw()
	if p.delay > 0 {
		s.delays.Add(1)
		timer := time.NewTimer(p.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return none, fmt.Errorf("%s: delayed: %w: %w", name, reservation.ErrUnavailable, ctx.Err())
		}
	}
	if p.before {
		s.before.Add(1)
		return none, fmt.Errorf("%s: injected before the call: %w", name, reservation.ErrUnavailable)
	}
	answer, err := do()
	if p.after {
		s.after.Add(1)
		return none, fmt.Errorf("%s: injected after the call: %w", name, reservation.ErrUnavailable)
	}
	return answer, err
}

// Reserve implements reservation.Store.
func (s *Store) Reserve(ctx context.Context, q reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
	return call(ctx, s, "reserve", func() (reservation.ReserveAnswer, error) { return s.inner.Reserve(ctx, q) })
}

// Refund implements reservation.Store.
func (s *Store) Refund(ctx context.Context, q reservation.RefundRequest) (reservation.RefundAnswer, error) {
	return call(ctx, s, "refund", func() (reservation.RefundAnswer, error) { return s.inner.Refund(ctx, q) })
}

// Renew implements reservation.Store.
func (s *Store) Renew(ctx context.Context, q reservation.RenewRequest) (reservation.RenewAnswer, error) {
	return call(ctx, s, "renew", func() (reservation.RenewAnswer, error) { return s.inner.Renew(ctx, q) })
}

// Confirm implements reservation.Store.
func (s *Store) Confirm(ctx context.Context, q reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
	return call(ctx, s, "confirm", func() (reservation.ConfirmVerdict, error) { return s.inner.Confirm(ctx, q) })
}

// Seed implements reservation.Store.
func (s *Store) Seed(ctx context.Context, q reservation.SeedRequest) (bool, error) {
	return call(ctx, s, "seed", func() (bool, error) { return s.inner.Seed(ctx, q) })
}

// Sweep implements reservation.Store.
func (s *Store) Sweep(ctx context.Context, most int) (reservation.SweepAnswer, error) {
	return call(ctx, s, "sweep", func() (reservation.SweepAnswer, error) { return s.inner.Sweep(ctx, most) })
}

// Lookup implements reservation.Store.
func (s *Store) Lookup(ctx context.Context, account string, id reservation.ID) (reservation.Record, error) {
	return call(ctx, s, "lookup", func() (reservation.Record, error) { return s.inner.Lookup(ctx, account, id) })
}

// Levels implements reservation.Store.
func (s *Store) Levels(ctx context.Context, account string, holds []reservation.Hold) ([]reservation.Level, time.Time, error) {
	type answer struct {
		levels []reservation.Level
		now    time.Time
	}
	a, err := call(ctx, s, "levels", func() (answer, error) {
		levels, now, err := s.inner.Levels(ctx, account, holds)
		return answer{levels, now}, err
	})
	return a.levels, a.now, err
}

// Restore implements reservation.Store.
func (s *Store) Restore(ctx context.Context, q reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
	return call(ctx, s, "restore", func() (reservation.RestoreVerdict, error) { return s.inner.Restore(ctx, q) })
}

// Open implements reservation.Store.
func (s *Store) Open(ctx context.Context, account, cursor string, most int) (reservation.OpenPage, error) {
	return call(ctx, s, "open", func() (reservation.OpenPage, error) { return s.inner.Open(ctx, account, cursor, most) })
}

// Push implements reservation.Store.
func (s *Store) Push(ctx context.Context, account string, usage []reservation.CounterUsage) error {
	_, err := call(ctx, s, "push", func() (struct{}, error) { return struct{}{}, s.inner.Push(ctx, account, usage) })
	return err
}

// GiveBack implements reservation.Store.
func (s *Store) GiveBack(ctx context.Context, account string, holds []reservation.Hold) (reservation.GiveBackAnswer, error) {
	return call(ctx, s, "giveback", func() (reservation.GiveBackAnswer, error) { return s.inner.GiveBack(ctx, account, holds) })
}

// Leave implements reservation.Store.
func (s *Store) Leave(ctx context.Context, r reservation.LeaveRequest) error {
	_, err := call(ctx, s, "leave", func() (struct{}, error) { return struct{}{}, s.inner.Leave(ctx, r) })
	return err
}

// Watch implements reservation.Store.
func (s *Store) Watch(account string, slots reservation.Counter, wake func()) (stop func()) {
	return s.inner.Watch(account, slots, wake)
}

// Audit implements reservation.Store.
func (s *Store) Audit(ctx context.Context, q reservation.AuditRequest) (reservation.AuditAnswer, error) {
	return call(ctx, s, "audit", func() (reservation.AuditAnswer, error) { return s.inner.Audit(ctx, q) })
}

// Ping implements reservation.Store.
func (s *Store) Ping(ctx context.Context) error {
	_, err := call(ctx, s, "ping", func() (struct{}, error) { return struct{}{}, s.inner.Ping(ctx) })
	return err
}

// Close closes the inner engine. It never fails by itself.
func (s *Store) Close() error { return s.inner.Close() }
