package spool_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/spool"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) {
	if scene := os.Getenv(childScene); scene != "" {
		if err := scenes[scene](os.Getenv(childPath)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	servers.Main(m)
}

var (
	noon  = time.Date(2026, time.November, 15, 12, 0, 0, 0, time.UTC)
	spend = ledger.UsageKey{Account: "acme", Limit: "spend.0123abcd", Period: "m2026-11-01", Meter: quota.MeterCost}
)

func closing(number int, rank ledger.Rank, amount quota.Amount) ledger.Closing {
	return ledger.Closing{
		Account: spend.Account, Reservation: [16]byte{7: 1, 13: byte(number >> 16), 14: byte(number >> 8), 15: byte(number)},
		Minted: noon, ClosedAt: noon.Add(time.Second), Rank: rank, Body: [16]byte{byte(rank), byte(amount)},
		Lines: []ledger.Line{{Limit: spend.Limit, Period: spend.Period, Meter: spend.Meter, Amount: amount}},
	}
}

// books is a real ledger that can be taken away, as one on a network is.
type books struct {
	ledger.Ledger
	away   atomic.Bool // calls fail without any effect
	mute   atomic.Bool // Appends have their effect and their answer is lost
	frozen atomic.Bool // calls do not return before their context ends
	busy   atomic.Bool // Appends are refused: too many wait
	calls  atomic.Int64
}

var errAway = fmt.Errorf("%w: nobody is there", ledger.ErrUnavailable)

func (b *books) trouble(ctx context.Context) error {
	b.calls.Add(1)
	if b.frozen.Load() {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", ledger.ErrUnavailable, ctx.Err())
	}
	if b.away.Load() {
		return errAway
	}
	return nil
}

func (b *books) Append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	if b.busy.Load() {
		return nil, ledger.ErrBusy
	}
	if err := b.trouble(ctx); err != nil {
		return nil, err
	}
	verdicts, err := b.Ledger.Append(ctx, closings)
	if err == nil && b.mute.Load() {
		return nil, errAway
	}
	return verdicts, err
}

func (b *books) Usage(ctx context.Context, keys []ledger.UsageKey) ([]ledger.Usage, error) {
	if err := b.trouble(ctx); err != nil {
		return nil, err
	}
	return b.Ledger.Usage(ctx, keys)
}

func (b *books) Closing(ctx context.Context, account string, reservation [16]byte, minted time.Time) (ledger.Closing, error) {
	if err := b.trouble(ctx); err != nil {
		return ledger.Closing{}, err
	}
	return b.Ledger.Closing(ctx, account, reservation, minted)
}

func (b *books) Ping(ctx context.Context) error {
	if err := b.trouble(ctx); err != nil {
		return err
	}
	return b.Ledger.Ping(ctx)
}

// rig is a spool in front of a ledger file.
type rig struct {
	*spool.Spool
	tb       testing.TB
	books    *books
	config   spool.Config
	log      *bytes.Buffer
	registry *prometheus.Registry

	mu      sync.Mutex
	drained []ledger.Drained
}

func newRig(tb testing.TB, change func(*spool.Config)) *rig {
	tb.Helper()
	dir := tb.TempDir()
	r := &rig{tb: tb, books: &books{Ledger: openBooks(tb, filepath.Join(dir, "ledger.db"))}, log: &bytes.Buffer{}}
	r.config = spool.Config{
		Next: r.books, Path: filepath.Join(dir, "spool.db"), Logger: slog.New(slog.NewTextHandler(r.log, nil)),
		Drained: func(drained []ledger.Drained) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.drained = append(r.drained, drained...)
		},
	}
	if change != nil {
		change(&r.config)
	}
	r.start()
	tb.Cleanup(func() {
		if err := errors.Join(r.Spool.Close(), r.books.Ledger.Close()); err != nil {
			tb.Error(err)
		}
	})
	return r
}

func openBooks(tb testing.TB, path string) *sqliteledger.Ledger {
	tb.Helper()
	db, err := sqliteledger.OpenFile(path, time.Minute)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	if _, err := migrations.Up(context.Background(), db, migrations.SQLite); err != nil {
		tb.Fatal(err)
	}
	l, err := sqliteledger.Open(context.Background(), sqliteledger.Config{Path: path, BusyTimeout: time.Minute})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// start opens the spool, as a new process would.
func (r *rig) start() {
	r.tb.Helper()
	r.registry = prometheus.NewRegistry()
	r.config.Metrics = r.registry
	var err error
	if r.Spool, err = spool.Open(context.Background(), r.config); err != nil {
		r.tb.Fatal(err)
	}
}

// restart closes the spool and opens it again.
func (r *rig) restart() {
	r.tb.Helper()
	if err := r.Spool.Close(); err != nil {
		r.tb.Fatal(err)
	}
	r.start()
}

// background runs the spool until the test ends.
func (r *rig) background() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	r.tb.Cleanup(func() { cancel(); running.Wait() })
}

func (r *rig) append(c ledger.Closing) ledger.Verdict {
	r.tb.Helper()
	verdicts, err := r.Append(context.Background(), []ledger.Closing{c})
	if err != nil {
		r.tb.Fatal(err)
	}
	return verdicts[0]
}

func (r *rig) drain() []ledger.Drained {
	r.tb.Helper()
	if err := r.Drain(context.Background()); err != nil {
		r.tb.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	drained := r.drained
	r.drained = nil
	return drained
}

// wantUsed checks what the ledger behind holds.
func (r *rig) wantUsed(want quota.Amount) {
	r.tb.Helper()
	wantUsed(r.tb, r.books.Ledger, want)
}

func wantUsed(tb testing.TB, l ledger.Ledger, want quota.Amount) {
	tb.Helper()
	usage, err := l.Usage(context.Background(), []ledger.UsageKey{spend})
	if err != nil {
		tb.Fatal(err)
	}
	if usage[0].Used != want {
		tb.Errorf("used %d, want %d", usage[0].Used, want)
	}
	if found, err := l.CheckSums(context.Background(), spend.Account); err != nil || len(found) > 0 {
		tb.Errorf("the books do not add up: %+v, %v", found, err)
	}
}

// value reads a metric: the sum over its labels.
func (r *rig) value(name string) float64 {
	r.tb.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.tb.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "budgetd_ledger_spool_"+name {
			continue
		}
		sum := 0.0
		for _, metric := range family.GetMetric() {
			sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
		return sum
	}
	r.tb.Fatalf("no metric %s", name)
	return 0
}

// filed returns the reasons of what is filed, in order.
func (r *rig) filed() (reasons []string) {
	r.tb.Helper()
	db, err := sql.Open("sqlite", r.config.Path)
	if err != nil {
		r.tb.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(`SELECT reason FROM filed ORDER BY id`)
	if err != nil {
		r.tb.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var reason string
		if err := rows.Scan(&reason); err != nil {
			r.tb.Fatal(err)
		}
		reasons = append(reasons, reason)
	}
	if err := rows.Err(); err != nil {
		r.tb.Fatal(err)
	}
	return reasons
}
