package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/quota"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine opens a SQLite ledger in a new file.
func engine(t *testing.T) *sqliteledger.Ledger {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	db, err := sqliteledger.OpenFile(path, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrations.Up(context.Background(), db, migrations.SQLite); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := sqliteledger.Open(context.Background(), sqliteledger.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, l) })
	return l
}

func closeAll(t *testing.T, closers ...interface{ Close() error }) {
	t.Helper()
	for _, c := range closers {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

// gate stands in front of an engine: it says when a transaction begins, and
// lets it go on when told to.
type gate struct {
	next  ledger.Appender
	begun chan int // closings of the transaction
	pass  chan error
}

func newGate(next ledger.Appender) *gate {
	return &gate{next: next, begun: make(chan int), pass: make(chan error)}
}

func (g *gate) Append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	g.begun <- len(closings)
	if err := <-g.pass; err != nil {
		return nil, err
	}
	return g.next.Append(ctx, closings)
}

// open lets transactions pass until stop is called.
func (g *gate) open() (stop func()) {
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-g.begun:
				g.pass <- nil
			case <-done:
				return
			}
		}
	})
	return func() { close(done); wait.Wait() }
}

func group(t *testing.T, next ledger.Appender, config ledger.GroupConfig) (*ledger.GroupCommitter, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	config.Metrics = registry
	g, err := ledger.NewGroupCommitter(next, config)
	if err != nil {
		t.Fatal(err)
	}
	return g, registry
}

var row = ledger.UsageKey{Account: "acme", Limit: "spend.0123abcd", Period: "m2026-11-01", Meter: quota.MeterCost}

func closing(number int) ledger.Closing {
	at := time.Date(2026, time.November, 15, 12, 0, 0, 0, time.UTC)
	return ledger.Closing{
		Account: row.Account, Reservation: [16]byte{7: 1, 14: byte(number >> 8), 15: byte(number)}, Minted: at, ClosedAt: at,
		Rank:  ledger.RankRefunded,
		Lines: []ledger.Line{{Limit: row.Limit, Period: row.Period, Meter: row.Meter, Amount: 1}},
	}
}

// value reads one sample, as `name{label="value"}` or a name.
func value(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			full := family.GetName()
			for _, label := range metric.GetLabel() {
				full += fmt.Sprintf("{%s=%q}", label.GetName(), label.GetValue())
			}
			if full != name {
				continue
			}
			switch {
			case metric.GetGauge() != nil:
				return metric.GetGauge().GetValue()
			case metric.GetHistogram() != nil:
				return metric.GetHistogram().GetSampleSum()
			}
			return metric.GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// awaitQueue waits until so many closings wait.
func awaitQueue(t *testing.T, registry *prometheus.Registry, closings float64) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for value(t, registry, "budgetd_ledger_queue_closings") != closings {
		select {
		case <-deadline:
			t.Fatalf("%v closings wait, want %v", value(t, registry, "budgetd_ledger_queue_closings"), closings)
		default:
		}
	}
}

// awaitClosed waits until the committer refuses calls. Before, it queues what
// is in the ledger already, which changes nothing.
func awaitClosed(t *testing.T, g *ledger.GroupCommitter) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := g.Append(ctx, []ledger.Closing{closing(0)})
		cancel()
		if errors.Is(err, ledger.ErrClosed) {
			return
		}
	}
	t.Fatal("the committer is still open")
}

func used(t *testing.T, l ledger.Ledger) quota.Amount {
	t.Helper()
	usage, err := l.Usage(context.Background(), []ledger.UsageKey{row})
	if err != nil {
		t.Fatal(err)
	}
	return usage[0].Used
}

func TestABatchIsWhatQueuedMeanwhile(t *testing.T) {
	l := engine(t)
	gate := newGate(l)
	g, registry := group(t, gate, ledger.GroupConfig{Parallel: 1, MaxBatch: 8})
	var callers sync.WaitGroup
	appendOne := func(number int) {
		verdicts, err := g.Append(t.Context(), []ledger.Closing{closing(number)})
		if err != nil || !verdicts[0].Posted {
			t.Errorf("closing %d: %+v, %v", number, verdicts, err)
		}
	}
	callers.Go(func() { appendOne(0) })
	if got := <-gate.begun; got != 1 {
		t.Errorf("an idle committer began with %d closings, want 1", got)
	}
	for number := range 19 {
		callers.Go(func() { appendOne(1 + number) })
	}
	awaitQueue(t, registry, 19)
	for _, want := range []int{8, 8, 3} {
		gate.pass <- nil
		if got := <-gate.begun; got != want {
			t.Errorf("a batch has %d closings, want %d", got, want)
		}
	}
	gate.pass <- nil
	callers.Wait()
	closeAll(t, g)
	if got := used(t, l); got != 20 {
		t.Errorf("used %d, want 20", got)
	}
	for name, want := range map[string]float64{
		`budgetd_ledger_batches_total{outcome="committed"}`: 4,
		`budgetd_ledger_closings_total{outcome="posted"}`:   20,
		`budgetd_ledger_batch_closings`:                     20,
		`budgetd_ledger_queue_closings`:                     0,
	} {
		if got := value(t, registry, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// A further transaction begins only for a full batch, and no more than Parallel
// are under way.
func TestTransactionsInParallel(t *testing.T) {
	gate := newGate(engine(t))
	g, registry := group(t, gate, ledger.GroupConfig{MaxBatch: 2, Parallel: 2})
	defer closeAll(t, g)
	var wait sync.WaitGroup
	call := func(number int) {
		wait.Go(func() {
			if _, err := g.Append(context.Background(), []ledger.Closing{closing(number)}); err != nil {
				t.Errorf("closing %d: %v", number, err)
			}
		})
	}
	begins := func(want int) {
		t.Helper()
		if got := <-gate.begun; got != want {
			t.Errorf("a transaction of %d closings, want %d", got, want)
		}
	}
	call(0)
	begins(1)
	call(1) // not a full batch: it waits for the transaction under way
	awaitQueue(t, registry, 1)
	call(2)
	begins(2) // beside the first
	for number := 3; number < 7; number++ {
		call(number)
	}
	awaitQueue(t, registry, 4) // two full batches, and no room for a third transaction
	select {
	case closings := <-gate.begun:
		t.Errorf("a third transaction, of %d closings", closings)
	case gate.pass <- nil:
		begins(2)
	}
	gate.pass <- nil
	begins(2)
	gate.pass <- nil
	gate.pass <- nil
	wait.Wait()
}

func TestACallStaysTogether(t *testing.T) {
	gate := newGate(engine(t))
	g, registry := group(t, gate, ledger.GroupConfig{Parallel: 1, MaxBatch: 4, MaxQueue: 100})
	call := func(first, count int) func() {
		return func() {
			var closings []ledger.Closing
			for i := range count {
				closings = append(closings, closing(first+i))
			}
			verdicts, err := g.Append(t.Context(), closings)
			if err != nil || len(verdicts) != count {
				t.Errorf("%d closings: %d verdicts, %v", count, len(verdicts), err)
			}
		}
	}
	var callers sync.WaitGroup
	callers.Go(call(0, 1))
	<-gate.begun
	queued := 0.0
	for i, count := range []int{3, 2, 9, 1} {
		callers.Go(call(100*(i+1), count))
		queued += float64(count)
		awaitQueue(t, registry, queued)
	}
	for _, want := range []int{3, 2, 9, 1} {
		gate.pass <- nil
		if got := <-gate.begun; got != want {
			t.Errorf("a batch has %d closings, want %d", got, want)
		}
	}
	gate.pass <- nil
	callers.Wait()
	closeAll(t, g)
}

func TestAFullQueueIsBusy(t *testing.T) {
	l := engine(t)
	gate := newGate(l)
	g, registry := group(t, gate, ledger.GroupConfig{Parallel: 1, MaxBatch: 2, MaxQueue: 3})
	var callers sync.WaitGroup
	for number := range 4 {
		callers.Go(func() {
			if _, err := g.Append(t.Context(), []ledger.Closing{closing(number)}); err != nil {
				t.Errorf("closing %d: %v", number, err)
			}
		})
		if number == 0 {
			<-gate.begun
		}
	}
	awaitQueue(t, registry, 3)
	_, err := g.Append(t.Context(), []ledger.Closing{closing(9)})
	if !errors.Is(err, ledger.ErrBusy) || !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("error %v, want ErrBusy", err)
	}
	gate.pass <- nil
	stop := gate.open()
	callers.Wait()
	if _, err := g.Append(t.Context(), []ledger.Closing{closing(9)}); err != nil {
		t.Errorf("after the queue has room: %v", err)
	}
	closeAll(t, g)
	stop()
	if got := used(t, l); got != 5 {
		t.Errorf("used %d, want 5", got)
	}
	if got := value(t, registry, `budgetd_ledger_errors_total{reason="busy"}`); got != 1 {
		t.Errorf("busy errors %v, want 1", got)
	}
}

func TestAnAbandonedClosingIsWritten(t *testing.T) {
	l := engine(t)
	gate := newGate(l)
	g, registry := group(t, gate, ledger.GroupConfig{})
	var callers sync.WaitGroup
	callers.Go(func() {
		if _, err := g.Append(t.Context(), []ledger.Closing{closing(0)}); err != nil {
			t.Error(err)
		}
	})
	<-gate.begun
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := g.Append(ctx, []ledger.Closing{closing(1)})
		left <- err
	}()
	awaitQueue(t, registry, 1)
	cancel()
	if err := <-left; !errors.Is(err, ledger.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want ErrUnavailable and context.Canceled", err)
	}
	gate.pass <- nil
	stop := gate.open()
	callers.Wait()
	verdicts, err := g.Append(t.Context(), []ledger.Closing{closing(1)})
	if err != nil || verdicts[0].Posted {
		t.Errorf("the abandoned closing again: %+v, %v; want it written before", verdicts, err)
	}
	// A context that has ended before queues nothing.
	if _, err := g.Append(ctx, []ledger.Closing{closing(2)}); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("error %v, want ErrUnavailable", err)
	}
	closeAll(t, g)
	stop()
	if got := used(t, l); got != 2 {
		t.Errorf("used %d, want 2", got)
	}
	if got := value(t, registry, `budgetd_ledger_errors_total{reason="abandoned"}`); got != 2 {
		t.Errorf("abandoned %v, want 2", got)
	}
}

func TestARefusedCallFailsAlone(t *testing.T) {
	l := engine(t)
	// 1025 times the largest amount leaves 64 bits, whatever the order.
	full := closing(1000)
	full.Account = "full"
	full.Lines[0].Amount = quota.MaxAmount
	var before []ledger.Closing
	for i := range 1024 {
		c := full
		c.Reservation = [16]byte{7: 1, 13: 1, 14: byte(i >> 8), 15: byte(i)}
		before = append(before, c)
	}
	if _, err := l.Append(t.Context(), before); err != nil {
		t.Fatal(err)
	}

	gate := newGate(l)
	g, registry := group(t, gate, ledger.GroupConfig{})
	var callers sync.WaitGroup
	callers.Go(func() {
		if _, err := g.Append(t.Context(), []ledger.Closing{closing(0)}); err != nil {
			t.Error(err)
		}
	})
	<-gate.begun
	for number := range 21 {
		callers.Go(func() {
			c := closing(1 + number)
			if number == 13 {
				c = full
			}
			verdicts, err := g.Append(t.Context(), []ledger.Closing{c})
			switch {
			case number == 13:
				if !errors.Is(err, quota.ErrOverflow) || errors.Is(err, ledger.ErrUnavailable) {
					t.Errorf("the overflow: error %v, want ErrOverflow", err)
				}
			case err != nil || !verdicts[0].Posted:
				t.Errorf("its neighbour %d: %+v, %v", number, verdicts, err)
			}
		})
	}
	awaitQueue(t, registry, 21)
	gate.pass <- nil
	stop := gate.open()
	callers.Wait()

	// What is out of bounds does not reach the queue.
	invalid := closing(500)
	invalid.Rank = 0
	if _, err := g.Append(t.Context(), []ledger.Closing{invalid}); !errors.Is(err, ledger.ErrInvalid) {
		t.Errorf("error %v, want ErrInvalid", err)
	}
	closeAll(t, g)
	stop()
	if got := used(t, l); got != 21 {
		t.Errorf("used %d, want 21", got)
	}
	for reason, want := range map[string]float64{"refused": 1, "invalid": 1, "unavailable": 0} {
		if got := value(t, registry, fmt.Sprintf("budgetd_ledger_errors_total{reason=%q}", reason)); got != want {
			t.Errorf("errors for being %s: %v, want %v", reason, got, want)
		}
	}
}

func TestCloseFinishesWhatWasAccepted(t *testing.T) {
	l := engine(t)
	gate := newGate(l)
	g, registry := group(t, gate, ledger.GroupConfig{Parallel: 1, MaxBatch: 2})
	var callers sync.WaitGroup
	for number := range 7 {
		callers.Go(func() {
			if _, err := g.Append(t.Context(), []ledger.Closing{closing(number)}); err != nil {
				t.Errorf("closing %d: %v", number, err)
			}
		})
		if number == 0 {
			<-gate.begun
		}
	}
	awaitQueue(t, registry, 6)
	closed := make(chan error)
	go func() { closed <- g.Close() }()
	awaitClosed(t, g)
	gate.pass <- nil
	stop := gate.open()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	callers.Wait()
	closeAll(t, g) // twice
	stop()
	if got := used(t, l); got != 7 {
		t.Errorf("used %d, want 7", got)
	}
}

func TestAnUnavailableLedger(t *testing.T) {
	l := engine(t)
	gate := newGate(l)
	g, registry := group(t, gate, ledger.GroupConfig{Parallel: 1, MaxBatch: 2})
	away := fmt.Errorf("%w: away", ledger.ErrUnavailable)
	failed := make(chan error, 9)
	call := func(number int) {
		_, err := g.Append(t.Context(), []ledger.Closing{closing(number)})
		failed <- err
	}
	go call(0)
	<-gate.begun
	gate.pass <- away
	if err := <-failed; !errors.Is(err, away) {
		t.Errorf("error %v, want that of the engine", err)
	}
	// It goes on with the next.
	go call(0)
	<-gate.begun
	gate.pass <- nil
	if err := <-failed; err != nil {
		t.Error(err)
	}
	// Close does not wait for every batch to fail by itself.
	go call(1)
	<-gate.begun
	for number := range 6 {
		go call(2 + number)
	}
	awaitQueue(t, registry, 6)
	closed := make(chan error)
	go func() { closed <- g.Close() }()
	awaitClosed(t, g)
	gate.pass <- away
	for range 7 {
		if err := <-failed; !errors.Is(err, away) {
			t.Errorf("error %v, want that of the engine", err)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if got := used(t, l); got != 1 {
		t.Errorf("used %d, want 1", got)
	}
}

func TestGroupConfig(t *testing.T) {
	l := engine(t)
	for field, config := range map[string]ledger.GroupConfig{
		"max_batch: -1":   {MaxBatch: -1},
		"max_batch: 4097": {MaxBatch: ledger.MaxAppend + 1},
		"max_queue: 3":    {MaxBatch: 4, MaxQueue: 3},
		"max_queue: -1":   {MaxQueue: -1},
		"append_timeout":  {AppendTimeout: -1},
	} {
		if _, err := ledger.NewGroupCommitter(l, config); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: error %v", field, err)
		}
	}
	g, registry := group(t, l, ledger.GroupConfig{MaxBatch: ledger.MaxAppend})
	if _, err := ledger.NewGroupCommitter(l, ledger.GroupConfig{Metrics: registry}); err == nil {
		t.Error("metrics were registered twice")
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	if got := value(t, registry, `budgetd_ledger_errors_total{reason="busy"}`); got != 0 {
		t.Errorf("a new committer counts %v", got)
	}
	closeAll(t, g)
}
