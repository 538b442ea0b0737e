package reservation_test

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/memstore"
	"github.com/budgetd/budgetd/reservation/storetest"
)

// rig is a broker on the embedded engine and a real ledger file, under a clock
// that moves when told to. Engine and ledger can be replaced or taken away
// while it runs, as happens to those on a network.
type rig struct {
	*reservation.Broker
	tb      testing.TB
	clock   *storetest.Clock
	engine  *swappedStore
	ledger  *swappedLedger
	policy  *fixedPolicy
	sweeper *reservation.Sweeper

	observer reservation.Observer
	config   reservation.Config       // of brokers to be started, beside what start fills in
	parts    func(*reservation.Parts) // changes those of brokers to be started; nil: as start makes them
	registry *prometheus.Registry
}

type fixedPolicy struct {
	atomic.Pointer[quota.Policy]
	uses []quota.GrantUse
}

func (p *fixedPolicy) Current() *quota.Policy { return p.Load() }

type testKeys struct {
	current uint16
	keys    map[uint16][]byte
}

func (k testKeys) Current() (uint16, []byte) { return k.current, k.keys[k.current] }
func (k testKeys) ByID(id uint16) ([]byte, bool) {
	key, ok := k.keys[id]
	return key, ok
}

var oneKey = testKeys{current: 7, keys: map[uint16][]byte{7: []byte("0123456789abcdef0123456789abcdef")}}

// swappedStore passes calls to whatever engine is in it, and can drop their
// answers or fail them outright.
type swappedStore struct {
	mu         sync.RWMutex
	engine     reservation.Store
	silent     atomic.Bool // calls fail without any effect
	loseAnswer atomic.Bool // calls have their effect and their answer is lost, once
	noConfirm  atomic.Bool // Confirm fails without any effect
	noRestore  atomic.Bool // Restore fails without any effect
}

// swap puts another engine in: what the old one knew is lost.
func (s *swappedStore) swap(engine reservation.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine = engine
}

func (s *swappedStore) current() reservation.Store {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.engine
}

func carried[A any](s *swappedStore, call func(reservation.Store) (A, error)) (A, error) {
	var none A
	if s.silent.Load() {
		return none, reservation.ErrUnavailable
	}
	answer, err := call(s.current())
	if s.loseAnswer.CompareAndSwap(true, false) {
		return none, reservation.ErrUnavailable
	}
	return answer, err
}

func (s *swappedStore) Reserve(ctx context.Context, r reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
	return carried(s, func(e reservation.Store) (reservation.ReserveAnswer, error) { return e.Reserve(ctx, r) })
}

func (s *swappedStore) Refund(ctx context.Context, r reservation.RefundRequest) (reservation.RefundAnswer, error) {
	return carried(s, func(e reservation.Store) (reservation.RefundAnswer, error) { return e.Refund(ctx, r) })
}

func (s *swappedStore) Renew(ctx context.Context, r reservation.RenewRequest) (reservation.RenewAnswer, error) {
	return carried(s, func(e reservation.Store) (reservation.RenewAnswer, error) { return e.Renew(ctx, r) })
}

func (s *swappedStore) Seed(ctx context.Context, r reservation.SeedRequest) (bool, error) {
	return carried(s, func(e reservation.Store) (bool, error) { return e.Seed(ctx, r) })
}

func (s *swappedStore) Restore(ctx context.Context, r reservation.RestoreRequest) (reservation.RestoreVerdict, error) {
	if s.noRestore.Load() {
		return 0, reservation.ErrUnavailable
	}
	return carried(s, func(e reservation.Store) (reservation.RestoreVerdict, error) { return e.Restore(ctx, r) })
}

func (s *swappedStore) Open(ctx context.Context, account, cursor string, most int) (reservation.OpenPage, error) {
	return carried(s, func(e reservation.Store) (reservation.OpenPage, error) { return e.Open(ctx, account, cursor, most) })
}

func (s *swappedStore) Push(ctx context.Context, account string, usage []reservation.CounterUsage) error {
	_, err := carried(s, func(e reservation.Store) (struct{}, error) { return struct{}{}, e.Push(ctx, account, usage) })
	return err
}

func (s *swappedStore) Leave(ctx context.Context, r reservation.LeaveRequest) error {
	_, err := carried(s, func(e reservation.Store) (struct{}, error) { return struct{}{}, e.Leave(ctx, r) })
	return err
}

func (s *swappedStore) Watch(account string, slots reservation.Counter, wake func()) (stop func()) {
	return s.current().Watch(account, slots, wake)
}

func (s *swappedStore) GiveBack(ctx context.Context, account string, holds []reservation.Hold) (reservation.GiveBackAnswer, error) {
	return carried(s, func(e reservation.Store) (reservation.GiveBackAnswer, error) { return e.GiveBack(ctx, account, holds) })
}

func (s *swappedStore) Audit(ctx context.Context, r reservation.AuditRequest) (reservation.AuditAnswer, error) {
	return carried(s, func(e reservation.Store) (reservation.AuditAnswer, error) { return e.Audit(ctx, r) })
}

func (s *swappedStore) Sweep(ctx context.Context, most int) (reservation.SweepAnswer, error) {
	return carried(s, func(e reservation.Store) (reservation.SweepAnswer, error) { return e.Sweep(ctx, most) })
}

func (s *swappedStore) Lookup(ctx context.Context, account string, id reservation.ID) (reservation.Record, error) {
	return carried(s, func(e reservation.Store) (reservation.Record, error) { return e.Lookup(ctx, account, id) })
}

// Confirm comes on its own time: only what is meant for it befalls it.
func (s *swappedStore) Confirm(ctx context.Context, r reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
	if s.silent.Load() || s.noConfirm.Load() {
		return 0, reservation.ErrUnavailable
	}
	return s.current().Confirm(ctx, r)
}

func (s *swappedStore) Levels(ctx context.Context, account string, holds []reservation.Hold) ([]reservation.Level, time.Time, error) {
	if s.silent.Load() {
		return nil, time.Time{}, reservation.ErrUnavailable
	}
	return s.current().Levels(ctx, account, holds)
}

func (s *swappedStore) Ping(ctx context.Context) error {
	_, err := carried(s, func(e reservation.Store) (none struct{}, err error) { return none, e.Ping(ctx) })
	return err
}

func (s *swappedStore) Close() error { return s.current().Close() }

// swappedLedger can be away, and fail its Appends before or after they have
// their effect.
type swappedLedger struct {
	ledger.Ledger
	silent     atomic.Bool
	appends    atomic.Int64 // that were asked for
	loseAnswer atomic.Bool
	refuse     atomic.Pointer[time.Time] // the closing minted then is refused for what it says
}

func (l *swappedLedger) Usage(ctx context.Context, keys []ledger.UsageKey) ([]ledger.Usage, error) {
	if l.silent.Load() {
		return nil, ledger.ErrUnavailable
	}
	return l.Ledger.Usage(ctx, keys)
}

func (l *swappedLedger) AccountUsage(ctx context.Context, account, period string, limit int) ([]ledger.Usage, error) {
	if l.silent.Load() {
		return nil, ledger.ErrUnavailable
	}
	return l.Ledger.AccountUsage(ctx, account, period, limit)
}

func (l *swappedLedger) Closing(ctx context.Context, account string, reservation [16]byte, minted time.Time) (ledger.Closing, error) {
	if l.silent.Load() {
		return ledger.Closing{}, ledger.ErrUnavailable
	}
	return l.Ledger.Closing(ctx, account, reservation, minted)
}

func (l *swappedLedger) Ping(ctx context.Context) error {
	if l.silent.Load() {
		return ledger.ErrUnavailable
	}
	return l.Ledger.Ping(ctx)
}

func (l *swappedLedger) Append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	l.appends.Add(1)
	if l.silent.Load() {
		return nil, ledger.ErrUnavailable
	}
	if bad := l.refuse.Load(); bad != nil {
		for _, c := range closings {
			if c.Minted.Equal(*bad) {
				return nil, ledger.ErrInvalid
			}
		}
	}
	verdicts, err := l.Ledger.Append(ctx, closings)
	if l.loseAnswer.CompareAndSwap(true, false) {
		return nil, ledger.ErrUnavailable
	}
	return verdicts, err
}

func newRig(tb testing.TB, policyYAML string) *rig {
	tb.Helper()
	r := &rig{tb: tb, clock: storetest.NewClock(), policy: &fixedPolicy{}}
	r.setPolicy(policyYAML)
	r.engine = &swappedStore{engine: r.newEngine()}
	r.ledger = &swappedLedger{Ledger: newLedger(tb)}
	r.start(r.ledger)
	return r
}

// start makes the broker of the rig, with a ledger in front of the rig's own.
func (r *rig) start(front ledger.Ledger) {
	r.registry = prometheus.NewRegistry()
	config := r.config
	config.Now, config.Deadline, config.Registerer = r.clock.Now, 5*time.Second, r.registry
	if config.LedgerDeadline == 0 {
		config.LedgerDeadline = 30 * time.Second // the race detector makes SQLite many times slower
	}
	config.Logger = r.log()
	parts := reservation.Parts{Store: r.engine, Ledger: front, Poster: r.ledger, Policies: r.policy, Estimator: oneEstimator(), Keys: oneKey, Observer: r.observer}
	if r.parts != nil {
		r.parts(&parts)
	}
	r.Broker = reservation.NewBroker(parts, config)
	broker := r.Broker
	r.tb.Cleanup(func() { broker.Close(context.Background()) })
	r.sweeper = reservation.NewSweeper(r.Broker)
}

// log goes into the test's own output.
func (r *rig) log() *slog.Logger { return slog.New(slog.NewTextHandler(r.tb.Output(), nil)) }

// metric reads one value; labels are name=value pairs in order of name.
func (r *rig) metric(name string, labels ...string) float64 {
	r.tb.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.tb.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var have []string
			for _, label := range m.GetLabel() {
				have = append(have, label.GetName()+"="+label.GetValue())
			}
			if family.GetName() == name && slices.Equal(have, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// oneEstimator is shared: what it learns of one test is too little for another, and
// reading the catalogue takes time.
var oneEstimator = sync.OnceValue(func() *estimator.Estimator {
	e, err := estimator.New(estimator.Config{})
	if err != nil {
		panic(err)
	}
	return e
})

func (r *rig) newEngine() reservation.Store {
	r.tb.Helper()
	engine, err := memstore.New(memstore.Config{Clock: r.clock.Now})
	if err != nil {
		r.tb.Fatal(err)
	}
	return engine
}

func (r *rig) setPolicy(text string) {
	r.tb.Helper()
	document, err := policyfile.Parse([]byte(text))
	if err != nil {
		r.tb.Fatal(err)
	}
	policy, err := document.Policy(1)
	if err != nil {
		r.tb.Fatal(err)
	}
	r.policy.Store(policy)
}

func newLedger(tb testing.TB) ledger.Ledger {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "ledger.db")
	db, err := sqliteledger.OpenFile(path, 5*time.Second)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	migrate(tb, db)
	l, err := sqliteledger.Open(context.Background(), sqliteledger.Config{Path: path})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return l
}

func migrate(tb testing.TB, db *sql.DB) {
	tb.Helper()
	if _, err := migrations.Up(context.Background(), db, migrations.SQLite); err != nil {
		tb.Fatal(err)
	}
}

// reserve grants or fails the test.
func (r *rig) reserve(ask reservation.Ask) *reservation.Grant {
	r.tb.Helper()
	d, err := r.Reserve(context.Background(), ask)
	if err != nil {
		r.tb.Fatalf("Reserve: %v", err)
	}
	if d.Refusal != nil {
		r.tb.Fatalf("Reserve: refused: %+v", *d.Refusal)
	}
	return d.Grant
}

func (r *rig) refused(ask reservation.Ask) *reservation.RefusedLimit {
	r.tb.Helper()
	d, err := r.Reserve(context.Background(), ask)
	if err != nil {
		r.tb.Fatalf("Reserve: %v", err)
	}
	if d.Refusal == nil {
		r.tb.Fatalf("Reserve: granted: %+v", *d.Grant)
	}
	return d.Refusal
}

func (r *rig) refund(id string, usage reservation.Usage) reservation.Receipt {
	r.tb.Helper()
	receipt, err := r.Refund(context.Background(), id, usage)
	if err != nil {
		r.tb.Fatalf("Refund: %v", err)
	}
	return receipt
}

func (r *rig) overview(labels map[string]string) map[string]reservation.LimitStatus {
	r.tb.Helper()
	view, err := r.Overview(context.Background(), "acme", labels)
	if err != nil {
		r.tb.Fatalf("Overview: %v", err)
	}
	byName := map[string]reservation.LimitStatus{}
	for _, limit := range view.Limits {
		byName[limit.Limit] = limit
	}
	return byName
}

func (r *rig) totals() quota.Amounts {
	r.tb.Helper()
	view, err := r.Overview(context.Background(), "acme", nil)
	if err != nil {
		r.tb.Fatalf("Overview: %v", err)
	}
	return view.Totals
}

// settled sweeps until nothing waits, as the passing of time would.
func (r *rig) settled() {
	r.tb.Helper()
	for range 20 {
		r.clock.Add(reservation.OutboxRetry)
		for more := true; more; {
			var err error
			if more, err = r.sweeper.Sweep(context.Background()); err != nil {
				r.tb.Fatalf("Sweep: %v", err)
			}
		}
	}
}

// settledWithin waits until confirmations on their way have arrived, and sweeps
// once after that span.
func (r *rig) settledWithin(span time.Duration) {
	r.tb.Helper()
	r.clock.Add(span)
	r.eventually("nothing is unposted", func() bool { return r.overview(nil)["budget"].Level.Unposted == 0 })
}

// eventually waits for what happens off the callers' path.
func (r *rig) eventually(what string, happened func() bool) {
	r.tb.Helper()
	deadline, look := time.After(time.Minute), time.NewTicker(2*time.Millisecond)
	defer look.Stop()
	for !happened() {
		select {
		case <-look.C:
		case <-deadline:
			r.tb.Fatalf("in a minute it did not happen that %s", what)
		}
	}
}

// balanced fails unless, with nothing open, every quota counter shows exactly
// what the ledger holds, and the ledger's rows are the sums of their entries.
func (r *rig) balanced() {
	r.tb.Helper()
	for name, limit := range r.overview(nil) {
		if limit.Kind != quota.KindQuota {
			continue
		}
		if limit.Level.Held != 0 || limit.Level.Unposted != 0 || limit.Level.Used != limit.Posted {
			r.tb.Errorf("quota %s: engine used %d held %d unposted %d, ledger %d", name, limit.Level.Used, limit.Level.Held, limit.Level.Unposted, limit.Posted)
		}
	}
	wrong, err := r.ledger.CheckSums(context.Background(), "acme")
	if err != nil {
		r.tb.Fatal(err)
	}
	if len(wrong) > 0 {
		r.tb.Errorf("usage rows that are not the sum of their entries: %+v", wrong)
	}
}

func tokens(n quota.Amount) reservation.Ask {
	return reservation.Ask{Account: "acme", Amounts: quota.Amounts{quota.MeterTokens: n}}
}

func used(n quota.Amount) reservation.Usage {
	return reservation.Usage{Amounts: quota.Amounts{quota.MeterTokens: n}}
}
