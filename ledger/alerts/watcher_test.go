package alerts

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

type policies struct{ atomic.Pointer[quota.Policy] }

func (p *policies) Current() *quota.Policy { return p.Load() }

// policyOf has one account, acme, with one quota of that amount.
func policyOf(t *testing.T, amount quota.Amount, percents ...int) *policies {
	t.Helper()
	p := &policies{}
	p.set(t, amount, percents...)
	return p
}

func (p *policies) set(t *testing.T, amount quota.Amount, percents ...int) {
	t.Helper()
	policy, err := quota.NewPolicy([]quota.Plan{{Name: "pro", Limits: []quota.Limit{
		{Name: "plain", Kind: quota.KindQuota, Meter: quota.MeterTokens, Period: quota.PeriodMonth, Max: amount},
		{Name: "watched", Kind: quota.KindQuota, Meter: quota.MeterTokens, Period: quota.PeriodMonth, Max: amount, AlertAt: percents},
	}}}, nil, []quota.Account{{Name: "acme", Plan: "pro"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	p.Store(policy)
}

// row is a usage row of a quota of policyOf.
func (p *policies) row(t *testing.T, limit, period string, used quota.Amount) []ledger.Usage {
	t.Helper()
	limits, err := p.Current().Limits("acme")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range limits {
		if l.Limit.Name == limit {
			return []ledger.Usage{
				{UsageKey: ledger.UsageKey{Account: "acme", Period: period, Meter: quota.MeterTokens}, Used: used},
				{UsageKey: ledger.UsageKey{Account: "acme", Limit: l.ID, Period: period, Meter: quota.MeterTokens}, Used: used, Version: 1},
			}
		}
	}
	t.Fatalf("no limit %s", limit)
	return nil
}

// running runs the watcher; the returned function stops it and waits until it
// has written everything.
func running(w *Watcher) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	return func() { cancel(); <-done }
}

// percents shows the alerts of a list, oldest first: "50@m2026-11-01".
func percents(alerts []Alert) string {
	var text []string
	for i := len(alerts) - 1; i >= 0; i-- {
		text = append(text, fmt.Sprintf("%d@%s", alerts[i].Percent, alerts[i].Period))
	}
	return strings.Join(text, " ")
}

func TestReachedIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.OneOf(rapid.Int64(), rapid.Int64Range(1, int64(quota.MaxAmount)), rapid.Int64Range(1, 1000)).Draw(t, "amount")
		percent := rapid.IntRange(-1, 1000).Draw(t, "percent")
		used := rapid.Int64().Draw(t, "used")
		if rapid.Bool().Draw(t, "near") {
			used = int64(float64(amount)/100*float64(percent)) + rapid.Int64Range(-2, 2).Draw(t, "by")
		}
		want := used > 0 && amount > 0 && percent > 0 &&
			new(big.Int).Mul(big.NewInt(used), big.NewInt(100)).Cmp(new(big.Int).Mul(big.NewInt(amount), big.NewInt(int64(percent)))) >= 0
		if got := reached(quota.Amount(used), quota.Amount(amount), percent); got != want {
			t.Fatalf("%d of %d at %d%%: %v", used, amount, percent, got)
		}
	})
	if !reached(math.MaxInt64, quota.MaxAmount, 1000) || reached(quota.MaxAmount/2, quota.MaxAmount, 50) || !reached(quota.MaxAmount/2+1, quota.MaxAmount, 50) {
		t.Error("at the ends of the range")
	}
}

// Each threshold is raised when it is reached, once a period, whatever the
// order in which rows are heard of, and not again when the limit is raised.
func TestThresholds(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		now := newClock()
		p := policyOf(t, 1000, 50, 80, 100, 150)
		hear := func(rows ...[]ledger.Usage) {
			// A new watcher each time, as after a restart: it knows nothing.
			w := NewWatcher(WatcherConfig{Policies: p, Store: open(), Clock: now.Now})
			stop := running(w)
			for _, r := range rows {
				w.Observed(r)
			}
			stop()
			now.Add(time.Second)
		}
		want := func(alerts string) {
			t.Helper()
			if got := percents(list(t, open(), "")); got != alerts {
				t.Errorf("raised: %s; want %s", got, alerts)
			}
		}
		const nov, dec = "m2026-11-01", "m2026-12-01"
		hear(p.row(t, "watched", nov, 499), p.row(t, "plain", nov, 5000), p.row(t, "watched", nov, -1), p.row(t, "watched", nov, math.MinInt64))
		want("")
		hear(p.row(t, "watched", nov, 500), p.row(t, "watched", nov, 799), p.row(t, "watched", nov, 500))
		want("50@" + nov)
		hear(p.row(t, "watched", nov, 900), p.row(t, "watched", nov, 600))
		want("50@" + nov + " 80@" + nov)
		p.set(t, 2000, 50, 80, 100, 150)
		hear(p.row(t, "watched", nov, 1600), p.row(t, "watched", nov, 1999))
		want("50@" + nov + " 80@" + nov)
		hear(p.row(t, "watched", dec, 1000))
		want("50@" + nov + " 80@" + nov + " 50@" + dec)
		hear(p.row(t, "watched", nov, 2000))
		want("50@" + nov + " 80@" + nov + " 50@" + dec + " 100@" + nov)
		a := list(t, open(), "")[0]
		if a.LimitName != "watched" || a.Used != 2000 || a.Amount != 2000 || a.Meter != quota.MeterTokens || !a.RaisedAt.Equal(now.Now().Add(-time.Second)) || a.State != StateQuiet {
			t.Errorf("%+v", a)
		}
		// Other accounts, other quotas, and what is older than alerts are kept.
		strange := p.row(t, "watched", nov, 5000)
		strange[1].Account = "nobody"
		other := p.row(t, "watched", nov, 5000)
		other[1].Limit = "watched.00000000"
		now.Add(staleAfter)
		hear(strange, other, p.row(t, "watched", nov, 4000), p.row(t, "watched", "not a period", 4000))
		want("50@" + nov + " 80@" + nov + " 50@" + dec + " 100@" + nov)
	})
}

// Grants count: a percent is of all that the quota allows in the period. While
// what the last period left of them is being settled, nothing is raised.
func TestThresholdsWithGrants(t *testing.T) {
	store, now := sqliteStores(t, 10*time.Second)(), newClock()
	p := &policies{}
	grants := []quota.Grant{{Name: "top-up", Limit: "watched", Amount: 1000, From: now.Now().Add(-time.Hour)}}
	limit := quota.Limit{Name: "watched", Kind: quota.KindQuota, Meter: quota.MeterTokens, Period: quota.PeriodDay, Max: 1000, AlertAt: []int{80}}
	policy, err := quota.NewPolicy([]quota.Plan{{Name: "pro", Limits: []quota.Limit{limit}}}, nil, []quota.Account{{Name: "acme", Plan: "pro", Grants: grants}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	p.Store(policy)
	hear := func(period string, used quota.Amount, want string) {
		t.Helper()
		w := NewWatcher(WatcherConfig{Policies: p, Store: store, Clock: now.Now})
		stop := running(w)
		w.Observed(p.row(t, "watched", period, used))
		stop()
		if got := percents(list(t, store, "")); got != want {
			t.Errorf("%d used in %s: raised %q, want %q", used, period, got, want)
		}
	}
	hear("d2026-11-15", 1599, "")
	hear("d2026-11-15", 1600, "80@d2026-11-15")
	if a := list(t, store, "")[0]; a.Amount != 2000 {
		t.Errorf("of %d, want 2,000", a.Amount)
	}
	// However long after midnight: what was left of the grant is not known yet.
	now.Add(time.Date(2026, 11, 16, 5, 0, 0, 0, time.UTC).Sub(now.Now()))
	hear("d2026-11-16", 1300, "80@d2026-11-15")
	uses, err := policy.Settle("acme", now.Now(), quota.AgainNothing, 9, func(asked []quota.Settling) ([]quota.Used, error) {
		return slices.Repeat([]quota.Used{{Amount: 1600}}, len(asked)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if policy, err = policy.With(nil, uses); err != nil {
		t.Fatal(err)
	}
	p.Store(policy)
	hear("d2026-11-16", 1119, "80@d2026-11-15")
	hear("d2026-11-16", 1120, "80@d2026-11-15 80@d2026-11-16")
	// A late Refund of the day before is measured by that day.
	hear("d2026-11-14", 800, "80@d2026-11-15 80@d2026-11-16 80@d2026-11-14")
}

// What is pruned is not raised again by a late change of its row: for every
// period, in every zone, alerts live longer than they can be raised.
func TestPrunedIsNotRaisedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		account := quota.Account{
			TimeZone:  rapid.SampledFrom([]string{"UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin"}).Draw(t, "zone"),
			AnchorDay: rapid.IntRange(1, 31).Draw(t, "anchor"),
		}
		unit := rapid.SampledFrom([]quota.PeriodUnit{quota.PeriodDay, quota.PeriodWeek, quota.PeriodMonth, quota.PeriodYear}).Draw(t, "unit")
		at := time.Unix(rapid.Int64Range(1_700_000_000, 2_500_000_000).Draw(t, "raised"), 0)
		period := account.PeriodAt(unit, at)
		if stale(period.Key, period.End.Add(24*time.Hour)) {
			t.Fatalf("%s is stale a day after its end", period.Key)
		}
		if pruned := at.Add(Retention); !stale(period.Key, pruned) {
			t.Fatalf("%s, raised at %v: pruned at %v and raised again", period.Key, at, pruned)
		}
	})
}

// A node with a wrong clock removes nothing that could be raised again.
func TestPruneByTheStoresClock(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		store := open()
		now, err := store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		old, young := event("acme", 10, now.Add(-Retention-time.Hour)), event("acme", 20, now)
		runs := event("acme", 30, now.Add(-3*Retention)) // raised by a node with a clock far behind
		old.Period = "m" + now.Add(-2*Retention).Format(time.DateOnly)
		young.Period = "m" + now.Format(time.DateOnly)
		runs.Period = young.Period
		for _, e := range []Event{old, young, runs} {
			raise(t, store, false, e)
		}
		ahead := func() time.Time { return now.AddDate(2, 0, 0) }
		NewWatcher(WatcherConfig{Policies: policyOf(t, 100, 100), Store: store, Clock: ahead}).prune(t.Context())
		if got, want := percents(list(t, store, "")), "30@"+young.Period+" 20@"+young.Period; got != want {
			t.Errorf("left: %s, want %s", got, want)
		}
	})
}

// Observed never blocks: what the queue has no room for is counted, and the
// next look at the row makes it good.
func TestFullQueue(t *testing.T) {
	store := sqliteStores(t, 10*time.Second)()
	p := policyOf(t, 1000, 10, 20, 30, 40, 50)
	registry := prometheus.NewRegistry()
	w := NewWatcher(WatcherConfig{Policies: p, Store: store, Queue: 2, Clock: newClock().Now, Registerer: registry})
	row := p.row(t, "watched", "m2026-11-01", 1000)
	w.Observed(row)
	if got := counterValue(t, registry, "budgetd_alerts_dropped_total"); got != 3 {
		t.Errorf("%v dropped, want 3", got)
	}
	stop := running(w)
	deadline := time.Now().Add(10 * time.Second)
	for len(list(t, store, "")) < 5 {
		if time.Now().After(deadline) {
			t.Fatalf("raised: %s", percents(list(t, store, "")))
		}
		w.Observed(row)
	}
	stop()
	if got := counterValue(t, registry, "budgetd_alerts_raised_total"); got != 5 {
		t.Errorf("%v raised, want 5", got)
	}
}

// While the store is away alerts wait, and the log tells it once.
func TestStoreAway(t *testing.T) {
	open := sqliteStores(t, time.Millisecond)
	store, blocker := open(), open()
	// A writer that does not end: the store answers "busy" to everybody else.
	held, err := blocker.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := held.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	var log lockedText
	woken := make(chan struct{}, 1)
	p := policyOf(t, 1000, 80)
	w := NewWatcher(WatcherConfig{
		Policies: p, Store: store, Clock: newClock().Now, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Raised: func() { woken <- struct{}{} },
	})
	stop := running(w)
	defer stop()
	w.Observed(p.row(t, "watched", "m2026-11-01", 900))
	await(t, func() bool { return strings.Contains(log.String(), "can't be raised") })
	if _, err := held.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-woken:
	case <-time.After(20 * time.Second):
		t.Fatal("not raised when the store is back")
	}
	await(t, func() bool { return strings.Contains(log.String(), "can be raised again") })
	if n := strings.Count(log.String(), "can't be raised"); n != 1 {
		t.Errorf("the log tells it %d times: %s", n, &log)
	}
}

// What is remembered of raised alerts is bounded, and the newest stay.
func TestRecent(t *testing.T) {
	r := newRecent(10)
	of := func(i int) threshold { return threshold{account: "a", percent: i} }
	for i := range 1000 {
		if !r.add(of(i)) {
			t.Fatalf("%d is known", i)
		}
		if r.add(of(i)) || i > 0 && r.add(of(i-1)) {
			t.Fatalf("%d is forgotten at once", i)
		}
		if n := len(r.young) + len(r.old); n > 20 {
			t.Fatalf("%d are remembered", n)
		}
	}
	r.remove(of(999))
	if !r.add(of(999)) || !r.add(of(1)) {
		t.Error("what was removed or long ago is known")
	}
}

func counterValue(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// lockedText is a log that is read while it is written.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until a condition holds.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come true")
		}
	}
}
