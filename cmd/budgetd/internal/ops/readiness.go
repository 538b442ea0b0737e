package ops

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// checkTimeout bounds one round of checks.
	checkTimeout = time.Second
	// checkEvery is how often probes may cause a round: who asks in between is
	// told the last result, so that probes are no way to load the stores.
	checkEvery = 500 * time.Millisecond
)

// Check is one thing that must be right for calls to be answered. Do must
// return when its context ends.
type Check struct {
	Name string // "engine", "ledger", "policy"
	Do   func(context.Context) error
}

// Readiness says whether the broker should get calls. It is safe for concurrent
// use.
type Readiness struct {
	checks   []Check
	draining atomic.Bool

	mu   sync.Mutex
	at   time.Time
	last error
}

// NewReadiness returns a readiness of these checks.
func NewReadiness(checks ...Check) *Readiness { return &Readiness{checks: checks} }

// Drain makes Ready fail from now on: the broker is stopping.
func (r *Readiness) Drain() { r.draining.Store(true) }

var errDraining = errors.New("draining: the broker is stopping")

// Ready returns nil, or what is wrong: one error a failed check, joined.
func (r *Readiness) Ready(ctx context.Context) error {
	if r.draining.Load() {
		return errDraining
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && time.Since(r.at) < checkEvery {
		return r.last
	}
	// Not the caller's context: its hang-up must not look like an outage to
	// those who are told this result.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	results := make([]error, len(r.checks))
	var running sync.WaitGroup
	for i, check := range r.checks {
		running.Go(func() {
			if err := check.Do(ctx); err != nil {
				results[i] = fmt.Errorf("%s: %w", check.Name, err)
			}
		})
	}
	running.Wait()
	r.at, r.last = time.Now(), errors.Join(results...)
	return r.last
}
