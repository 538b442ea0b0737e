package policystore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/quota"
)

// Defaults and bounds of [WatcherConfig].
const (
	DefaultPollInterval = time.Second
	minPollInterval     = 10 * time.Millisecond
	maxPollInterval     = time.Minute

	versionWithin = 2 * time.Second // to read the version
	loadWithin    = time.Minute     // to read a policy: a million accounts take seconds
)

// WatcherConfig is how a [Watcher] follows its store. Zero means the default.
type WatcherConfig struct {
	// Interval is how often Run asks for the version, 10 ms to 1 min; 1 s by
	// default.
	Interval time.Duration
	// Wake makes Run look at once, as when the store says that it changed. It
	// need not be reliable: the interval is the net. nil: nothing wakes it.
	Wake <-chan struct{}
	// Registerer takes the metrics; nil: they are not exported.
	Registerer prometheus.Registerer
	// Log takes changes of state; nil: slog.Default().
	Log *slog.Logger
}

// Watcher follows a store and hands out the newest policy in it that is valid.
// It is safe for concurrent use, and Current takes no lock.
type Watcher struct {
	store   *Store
	config  WatcherConfig
	metrics *watcherMetrics
	current atomic.Pointer[quota.Policy]

	mu     sync.Mutex // one Poll at a time
	seen   int64      // version that was loaded last, or found broken
	broken error      // what is wrong with that version; nil: it is in force
	away   bool       // the last Poll got no answer
}

// Watch loads the policy and returns a watcher of it; call Run to have it
// follow the store. The error is that of [Store.Load], or names the field of
// the config that is out of its bounds.
func Watch(ctx context.Context, store *Store, config WatcherConfig) (*Watcher, error) {
	if config.Interval == 0 {
		config.Interval = DefaultPollInterval
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	if config.Interval < minPollInterval || config.Interval > maxPollInterval {
		return nil, fmt.Errorf("interval: %v is not between %v and %v", config.Interval, minPollInterval, maxPollInterval)
	}
	w := &Watcher{store: store, config: config, metrics: newWatcherMetrics()}
	started := time.Now()
	policy, err := store.Load(ctx)
	if err != nil {
		return nil, err
	}
	// Last, so that a start that failed can be tried again.
	if err := w.metrics.register(config.Registerer); err != nil {
		return nil, err
	}
	w.accept(policy, started)
	return w, nil
}

// Current returns the newest valid policy, without pins that have ended by the
// store's clock: never nil, never changed.
func (w *Watcher) Current() *quota.Policy {
	policy := w.current.Load()
	if policy.PinEnds().IsZero() {
		return policy
	}
	now := policy.At(w.store.clock())
	if now != policy && w.current.CompareAndSwap(policy, now) {
		w.notePins(policy, now)
	}
	return now
}

// Run polls at each interval, and when it is woken, until the context ends, and
// returns its error. After a poll it rests for as long as that took, at most an
// interval: however often the policy changes, a large one is not loaded all the
// time.
func (w *Watcher) Run(ctx context.Context) error {
	ticker := time.NewTicker(w.config.Interval)
	defer ticker.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-rest.C:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		case <-w.config.Wake:
		}
		started := time.Now()
		_ = w.Poll(ctx) // counted and logged there; the next tick tries again
		rest.Reset(min(time.Since(started), w.config.Interval))
	}
}

// Poll looks once, and loads the policy if its version is another. When the
// stored policy is broken, or the store does not answer, the policy that was
// loaded before stays; a broken one is loaded again when its version changes.
// Metrics count every poll; the log tells a change from good to bad and back
// once. The error wraps [ErrBroken] or [ErrUnavailable] or is the context's.
func (w *Watcher) Poll(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	result, err := w.poll(ctx)
	if err != nil && ctx.Err() != nil {
		return err // the node is stopping, which says nothing about the store
	}
	if result == pollUnavailable && !errors.Is(err, ErrUnavailable) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err) // in the time that we gave it
	}
	w.metrics.polls.WithLabelValues(string(result)).Inc()
	w.noteAway(result == pollUnavailable, err)
	return err
}

// poll holds w.mu.
func (w *Watcher) poll(ctx context.Context) (pollResult, error) {
	w.Current() // so that the log and the metrics know of a pin's end when nobody calls
	version, err := w.version(ctx)
	switch {
	case err != nil:
		return pollUnavailable, err
	// A store restored from a backup has an older version, and counts too.
	case version == w.seen && w.broken != nil:
		return pollBroken, w.broken
	case version == w.seen:
		return pollUnchanged, nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadWithin)
	defer cancel()
	started := time.Now()
	policy, err := w.store.Load(ctx)
	switch {
	case errors.Is(err, ErrBroken):
		w.seen, w.broken = version, err
		w.metrics.broken.Set(1)
		w.config.Log.Error("the stored policy is broken; the one before stays in force",
			"version", version, "in_force", w.Current().Version, "error", err)
		return pollBroken, err
	case err != nil:
		return pollUnavailable, err
	}
	w.accept(policy, started)
	w.config.Log.Info("a new policy is in force", "version", policy.Version)
	return pollLoaded, nil
}

func (w *Watcher) version(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, versionWithin)
	defer cancel()
	return w.store.Version(ctx)
}

func (w *Watcher) accept(policy *quota.Policy, started time.Time) {
	w.seen, w.broken = policy.Version, nil
	w.metrics.broken.Set(0)
	before := w.current.Swap(policy)
	w.notePins(before, policy)
	w.metrics.loadSeconds.Observe(time.Since(started).Seconds())
	w.metrics.version.Set(float64(policy.Version))
	w.metrics.objects.WithLabelValues(string(KindPlan)).Set(float64(len(policy.Plans)))
	w.metrics.objects.WithLabelValues(string(KindPool)).Set(float64(len(policy.Pools)))
	w.metrics.objects.WithLabelValues(string(KindAccount)).Set(float64(len(policy.Accounts)))
	w.metrics.objects.WithLabelValues(string(KindPrice)).Set(float64(pricedModels(policy)))
}

func pricedModels(policy *quota.Policy) int {
	n := 0
	for i, price := range policy.Prices {
		if i == 0 || policy.Prices[i-1].Name() != price.Name() {
			n++
		}
	}
	return n
}

// noteAway logs when the store goes away or comes back. w.mu is held.
func (w *Watcher) noteAway(away bool, err error) {
	if away == w.away {
		return
	}
	w.away = away
	version := w.Current().Version
	if away {
		w.config.Log.Warn("the policy store does not answer; the policy stays as it is", "in_force", version, "error", err)
	} else {
		w.config.Log.Info("the policy store answers again", "in_force", version)
	}
}

// notePins logs which pins began and ended between two policies, the first of which
// is nil at the start.
func (w *Watcher) notePins(before, after *quota.Policy) {
	var old []quota.Pin
	if before != nil {
		old = before.Pins()
	}
	new := after.Pins()
	for _, pin := range new {
		if !slices.Contains(old, pin) {
			w.config.Log.Warn("limits are pinned, whatever the policy states", "limits", pin.Name(), "mode", pin.Mode.Word(),
				"by", pin.By, "since", pin.Since, "until", until(pin), "reason", pin.Reason)
		}
	}
	for _, pin := range old {
		if !slices.ContainsFunc(new, func(p quota.Pin) bool { return p.Name() == pin.Name() }) {
			w.config.Log.Warn("a pin has ended: the policy's modes count again", "limits", pin.Name(), "mode", pin.Mode.Word(), "by", pin.By)
		}
	}
	counts := map[quota.Mode]int{}
	for _, pin := range new {
		counts[pin.Mode]++
	}
	for _, mode := range []quota.Mode{quota.ModeEnforce, quota.ModeShadow, quota.ModeOff} {
		w.metrics.pins.WithLabelValues(mode.Word()).Set(float64(counts[mode]))
	}
}

// until is when a pin ends, as the log has it.
func until(pin quota.Pin) string {
	if pin.Until.IsZero() {
		return "it is taken away"
	}
	return pin.Until.Format(time.RFC3339)
}
