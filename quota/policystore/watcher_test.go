package policystore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func watch(t *testing.T, store *Store, config WatcherConfig) *Watcher {
	t.Helper()
	w, err := Watch(t.Context(), store, config)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// metrics returns counters and gauges by name, and by name and label.
func metrics(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "budgetd_quota_policy_")
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			values[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return values
}

func TestWatcherFollows(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		store := Open(open(), nil)
		registry := prometheus.NewRegistry()
		w := watch(t, Open(open(), nil), WatcherConfig{Registerer: registry, Log: slog.New(slog.DiscardHandler)})
		if w.Current().Version != 0 {
			t.Errorf("an empty store has version %d", w.Current().Version)
		}
		apply(t, store, firstFile)
		before := w.Current()
		if before.Version != 0 {
			t.Error("the watcher followed without a poll")
		}
		for range 3 {
			if err := w.Poll(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if w.Current().Version != 1 || len(w.Current().Accounts) != 2 || len(before.Accounts) != 0 {
			t.Errorf("after a poll: version %d with %d accounts, and the one handed out before has %d", w.Current().Version, len(w.Current().Accounts), len(before.Accounts))
		}
		got := metrics(t, registry)
		for name, want := range map[string]float64{
			"polls_total loaded": 1, "polls_total unchanged": 2, "polls_total broken": 0, "polls_total unavailable": 0,
			"broken": 0, "version": 1, "objects plan": 2, "objects pool": 1, "objects account": 2, "objects price": 1,
		} {
			if got[name] != want {
				t.Errorf("%s = %v, want %v", name, got[name], want)
			}
		}
	})
}

// A broken policy, an outage, and what comes after: the policy in force stays,
// each change of state is logged once.
func TestWatcherKeepsTheLastGood(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		store := Open(db, nil)
		apply(t, store, firstFile)
		var logged bytes.Buffer
		registry := prometheus.NewRegistry()
		watched := open()
		w := watch(t, Open(watched, nil), WatcherConfig{Registerer: registry, Log: slog.New(slog.NewTextHandler(&logged, nil))})
		exec := func(statement string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		exec(`UPDATE plans SET document = '{"newer":1}' WHERE name = 'pro'`)
		exec(`UPDATE versions SET version = 7 WHERE subject = 'policy'`)
		for range 3 {
			if err := w.Poll(t.Context()); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), `plan "pro": json: unknown field "newer"`) {
				t.Errorf("Poll = %v, want ErrBroken with the word", err)
			}
		}
		if p := w.Current(); p.Version != 1 || len(p.Plans) != 2 {
			t.Errorf("version %d is in force, want 1", p.Version)
		}
		got := metrics(t, registry)
		if got["broken"] != 1 || got["polls_total broken"] != 3 || got["version"] != 1 {
			t.Errorf("metrics = %v", got)
		}
		if n := strings.Count(logged.String(), "the one before stays"); n != 1 {
			t.Errorf("logged %d times that it is broken, want 1: %s", n, logged.String())
		}
		// Stating it all again repairs it.
		apply(t, store, firstFile)
		if err := w.Poll(t.Context()); err != nil {
			t.Error(err)
		}
		if w.Current().Version != 8 {
			t.Errorf("version %d is in force, want 8", w.Current().Version)
		}
		if got := metrics(t, registry); got["broken"] != 0 || got["version"] != 8 {
			t.Errorf("metrics = %v", got)
		}
		// A backup of an older state is followed too.
		exec(`UPDATE versions SET version = 3 WHERE subject = 'policy'`)
		if err := w.Poll(t.Context()); err != nil || w.Current().Version != 3 {
			t.Errorf("after a restored backup: %v, version %d", err, w.Current().Version)
		}
		// A caller that stops is no outage.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Poll(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Poll of a cancelled context: %v", err)
		}
		watched.Close()
		for range 3 {
			if err := w.Poll(t.Context()); !errors.Is(err, ErrUnavailable) {
				t.Errorf("Poll = %v, want ErrUnavailable", err)
			}
		}
		if w.Current().Version != 3 {
			t.Errorf("version %d is in force, want 3", w.Current().Version)
		}
		if n := strings.Count(logged.String(), "does not answer; the policy stays"); n != 1 {
			t.Errorf("logged %d times that the store is away, want 1: %s", n, logged.String())
		}
		if got := metrics(t, registry); got["polls_total unavailable"] != 3 {
			t.Errorf("metrics = %v", got)
		}
	})
}

func TestWatchRefuses(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		store := Open(db, nil)
		for _, interval := range []time.Duration{-1, time.Millisecond, time.Hour} {
			if _, err := Watch(t.Context(), store, WatcherConfig{Interval: interval}); err == nil || !strings.Contains(err.Error(), "interval") {
				t.Errorf("interval %v: %v", interval, err)
			}
		}
		apply(t, store, firstFile)
		if _, err := db.ExecContext(t.Context(), `DELETE FROM plans`); err != nil {
			t.Fatal(err)
		}
		registry := prometheus.NewRegistry()
		if _, err := Watch(t.Context(), store, WatcherConfig{Registerer: registry}); !errors.Is(err, ErrBroken) {
			t.Errorf("a broken policy: %v", err)
		}
		apply(t, store, firstFile)
		// What failed before can be tried again with the same registry.
		watch(t, store, WatcherConfig{Registerer: registry})
	})
}

// Run follows by itself, beside readers, and ends with its context.
func TestWatcherRun(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		store := Open(open(), nil)
		w := watch(t, Open(open(), nil), WatcherConfig{Interval: minPollInterval, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			if err := w.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Run = %v", err)
			}
		})
		for range 3 {
			done.Go(func() {
				last := int64(0)
				for ctx.Err() == nil {
					p := w.Current()
					if p.Version < last || p.Version > 0 && len(p.Accounts) == 0 {
						t.Errorf("version %d after %d, with %d accounts", p.Version, last, len(p.Accounts))
						return
					}
					last = p.Version
					time.Sleep(time.Millisecond)
				}
			})
		}
		for i, text := range []string{firstFile, "accounts: {late: {plan: free}}"} {
			apply(t, store, text)
			deadline := time.Now().Add(20 * time.Second)
			for w.Current().Version != int64(i+1) {
				if time.Now().After(deadline) {
					t.Fatalf("version %d is not in force within 20 s", i+1)
				}
				time.Sleep(time.Millisecond)
			}
		}
		cancel()
		done.Wait()
	})
}

func TestMetricsLint(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		registry := prometheus.NewRegistry()
		watch(t, Open(open(), nil), WatcherConfig{Registerer: registry})
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("promlint: %v, %v", problems, err)
		}
		var names []string
		for _, family := range families {
			names = append(names, family.GetName())
		}
		want := []string{"budgetd_quota_policy_broken", "budgetd_quota_policy_load_seconds", "budgetd_quota_policy_objects", "budgetd_quota_policy_pins", "budgetd_quota_policy_polls_total", "budgetd_quota_policy_version"}
		if !slices.Equal(names, want) {
			t.Errorf("metrics = %v, want %v", names, want)
		}
	})
}

// A store that is frozen (here: the table is locked) is away, not waited for
// without end.
func TestWatcherFrozen(t *testing.T) {
	t.Parallel()
	open := postgres(t)
	w := watch(t, Open(open(), nil), WatcherConfig{Log: slog.New(slog.DiscardHandler)})
	lock, err := open().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.ExecContext(t.Context(), `LOCK TABLE versions IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	if err := w.Poll(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Poll = %v, want ErrUnavailable", err)
	}
	if took := time.Since(started); took < versionWithin || took > 5*versionWithin {
		t.Errorf("Poll took %v, want about %v", took, versionWithin)
	}
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := w.Poll(t.Context()); err != nil {
		t.Errorf("after the lock: %v", err)
	}
}
