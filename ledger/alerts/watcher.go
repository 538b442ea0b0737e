package alerts

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// Policies gives the policy in force.
type Policies interface {
	Current() *quota.Policy
}

// WatcherConfig is what a [Watcher] works with. Policies and Store are
// required.
type WatcherConfig struct {
	Policies Policies
	Store    *Store
	// Deliver says that a webhook is to be told: alerts go to the outbox.
	Deliver bool
	// Raised is called after this node has raised an alert, so that a
	// [Deliverer] need not wait for its next look. It must not block. Nil:
	// nobody is told.
	Raised func()
	// Clock is time.Now unless set.
	Clock func() time.Time
	// Queue bounds the thresholds that wait to be written; 4,096 unless set.
	// What does not fit is noticed again with the next change of the row.
	Queue int
	// Registerer takes the metrics; none unless set.
	Registerer prometheus.Registerer
	// Log takes what an operator must know; slog.Default unless set.
	Log *slog.Logger
}

// Bounds of a Watcher's work.
const (
	raiseWithin  = 5 * time.Second
	raisePause   = time.Second     // between tries while the store is away
	flushWithin  = 2 * time.Second // for what is left when the node stops
	pruneFirst   = time.Minute
	pruneEvery   = time.Hour
	pruneAtOnce  = 1000
	knownAlerts  = 1 << 15 // of each of two generations
	defaultQueue = 4096

	// staleAfter is how long after its start a period still raises alerts. It is
	// longer than a year, the longest period, by more than a late Refund takes,
	// and shorter than Retention, so that what was pruned is not raised again.
	// The day between covers the zones: a period's key is a local date.
	staleAfter = Retention - 24*time.Hour
)

// Watcher hears of usage rows and raises the alerts of the thresholds that they
// have reached. It is safe for concurrent use.
type Watcher struct {
	config  WatcherConfig
	queue   chan Event
	known   *recent
	raised  prometheus.Counter
	dropped prometheus.Counter
}

// NewWatcher returns a watcher; call Run to have it write what it notices.
func NewWatcher(config WatcherConfig) *Watcher {
	if config.Raised == nil {
		config.Raised = func() {}
	}
	if config.Clock == nil {
		config.Clock = time.Now
	}
	if config.Queue <= 0 {
		config.Queue = defaultQueue
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	w := &Watcher{config: config, queue: make(chan Event, config.Queue), known: newRecent(knownAlerts)}
	w.raised, w.dropped = newWatcherMetrics(config.Registerer)
	return w
}

// Observed looks at usage rows as the ledger has just changed them. It never
// blocks, and may be told of a row late, twice or in any order: a row that has
// reached a threshold has its alert raised unless it is raised already.
func (w *Watcher) Observed(usage []ledger.Usage) {
	var policy *quota.Policy
	for i := range usage {
		u := &usage[i]
		if u.Limit == "" || u.Used <= 0 {
			continue
		}
		if policy == nil {
			policy = w.config.Policies.Current()
		}
		w.observe(policy, u)
	}
}

func (w *Watcher) observe(policy *quota.Policy, u *ledger.Usage) {
	now := w.config.Clock()
	applied, ok := alerting(policy, u)
	if !ok || stale(u.Period, now) {
		return
	}
	amount, known := allowed(policy, applied, u, now)
	if !known {
		return
	}
	for _, percent := range applied.Limit.AlertAt {
		if !reached(u.Used, amount, percent) {
			return // they ascend
		}
		e := Event{
			UsageKey: u.UsageKey, LimitName: applied.Limit.Name, Percent: percent,
			Used: u.Used, Amount: amount, RaisedAt: ledger.Instant(now),
		}
		key := thresholdOf(&e)
		if !w.known.add(key) {
			continue
		}
		select {
		case w.queue <- e:
		default:
			w.known.remove(key)
			w.dropped.Inc()
		}
	}
}

// alerting returns the quota that counts in the usage row, as the account has
// it now, if it has thresholds.
func alerting(policy *quota.Policy, u *ledger.Usage) (quota.Applied, bool) {
	limits, err := policy.Limits(u.Account)
	if err != nil {
		return quota.Applied{}, false // the account was removed
	}
	for i := range limits {
		if a := &limits[i]; a.Pool == "" && a.ID == u.Limit && a.Limit.Kind == quota.KindQuota && len(a.Limit.AlertAt) > 0 {
			found := *a
			found.Scope = u.Scope
			return found, true
		}
	}
	return quota.Applied{}, false
}

// allowed is what the quota allows now in the row's period, or allowed in one
// that has passed. It is not known while what the account's grants have for the
// period is not settled: an alert would be of too small an amount, and stand. Nor
// is it of a period that the quota has left for another calendar.
func allowed(policy *quota.Policy, applied quota.Applied, u *ledger.Usage, now time.Time) (amount quota.Amount, known bool) {
	account := policy.Accounts[u.Account]
	if !slices.ContainsFunc(account.Grants, func(g quota.Grant) bool { return g.Limit == applied.Limit.Name && g.Scope == applied.Scope }) {
		return applied.Limit.Max, true
	}
	period, err := quota.PeriodFromKey(u.Period, account.TimeZone, account.AnchorDay)
	if err != nil {
		return 0, false
	}
	return policy.Measure(account, applied, period, now)
}

// reached says whether used is percent of amount or more, exactly.
func reached(used, amount quota.Amount, percent int) bool {
	if used <= 0 || amount <= 0 || percent <= 0 {
		return false
	}
	return quota.CompareProducts(uint64(used), 100, uint64(amount), uint64(percent)) >= 0
}

// stale says whether a period is so old that its alerts may have been pruned.
func stale(period string, now time.Time) bool {
	_, year, month, day, err := quota.ParsePeriodKey(period)
	return err != nil || now.Sub(time.Date(year, month, day, 0, 0, 0, 0, time.UTC)) > staleAfter
}

// Run writes the alerts that Observed notices until ctx ends, and then what is
// left, once. It removes alerts after [Retention].
func (w *Watcher) Run(ctx context.Context) {
	prune := time.NewTimer(pruneFirst)
	defer prune.Stop()
	for {
		select {
		case <-ctx.Done():
			w.flush()
			return
		case <-prune.C:
			w.prune(ctx)
			prune.Reset(pruneEvery)
		case first := <-w.queue:
			batch := w.gather([]Event{first})
			if !w.raiseUntilWritten(ctx, batch) {
				w.flush(batch...)
				return
			}
		}
	}
}

// gather takes what waits, as much as one statement writes.
func (w *Watcher) gather(batch []Event) []Event {
	for len(batch) < raiseAtOnce {
		select {
		case e := <-w.queue:
			batch = append(batch, e)
		default:
			return batch
		}
	}
	return batch
}

// raiseUntilWritten reports false when ctx ended first.
func (w *Watcher) raiseUntilWritten(ctx context.Context, batch []Event) bool {
	for away := false; ; {
		err := w.raise(ctx, batch, raiseWithin)
		switch {
		case err == nil:
			if away {
				w.config.Log.Info("alerts can be raised again")
			}
			return true
		case ctx.Err() != nil:
			return false
		case !away:
			away = true
			w.config.Log.Warn("alerts can't be raised; they wait", "waiting", len(batch)+len(w.queue), "error", err)
		}
		pause := time.NewTimer(raisePause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return false
		case <-pause.C:
		}
	}
}

func (w *Watcher) raise(ctx context.Context, batch []Event, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	raised, err := w.config.Store.Raise(ctx, batch, w.config.Deliver)
	if err != nil {
		return err
	}
	any := false
	for i, e := range batch {
		if !raised[i] {
			continue
		}
		any = true
		w.raised.Inc()
		w.config.Log.Info("a quota has reached a threshold", "account", e.Account, "limit", e.LimitName, "scope", e.Scope,
			"period", e.Period, "percent", e.Percent, "used", int64(e.Used), "amount", int64(e.Amount), "meter", string(e.Meter))
	}
	if any {
		w.config.Raised()
	}
	return nil
}

// flush writes what is left when the node stops. What can't be written is
// noticed again with the next change of its row, on any node.
func (w *Watcher) flush(left ...Event) {
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	for left = w.gather(left); len(left) > 0; left = w.gather(nil) {
		if err := w.raise(ctx, left, flushWithin); err != nil {
			w.dropped.Add(float64(len(left) + len(w.queue)))
			w.config.Log.Warn("alerts were not raised before the end; they are noticed again", "alerts", len(left)+len(w.queue), "error", err)
			return
		}
	}
}

func (w *Watcher) prune(ctx context.Context) {
	for {
		part, cancel := context.WithTimeout(ctx, raiseWithin)
		n := 0
		now, err := w.config.Store.Now(part) // a node's clock may be wrong
		if err == nil {
			n, err = w.config.Store.Prune(part, now.Add(-Retention), pruneAtOnce)
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			w.config.Log.Warn("old alerts could not be removed; that is tried again", "error", err)
		}
		if err != nil || n < pruneAtOnce {
			return
		}
	}
}

// threshold is what makes an alert one.
type threshold struct {
	account, limit, scope, period string
	percent                       int
}

func thresholdOf(e *Event) threshold {
	return threshold{e.Account, e.Limit, e.Scope, e.Period, e.Percent}
}

// recent remembers thresholds that are raised or about to be, in two
// generations of bounded size: when the younger is full the older is forgotten.
// What is forgotten costs one statement that changes nothing.
type recent struct {
	size int
	mu   sync.Mutex
	// young takes what is new, old is what young was before.
	young, old map[threshold]struct{}
}

func newRecent(size int) *recent {
	return &recent{size: size, young: map[threshold]struct{}{}}
}

// add reports whether the threshold was not known.
func (r *recent) add(t threshold) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.young[t]; known {
		return false
	}
	_, known := r.old[t]
	if len(r.young) >= r.size {
		r.young, r.old = map[threshold]struct{}{}, r.young
	}
	r.young[t] = struct{}{}
	return !known
}

func (r *recent) remove(t threshold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.young, t)
	delete(r.old, t)
}
