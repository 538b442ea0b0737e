package reservation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/sony/gobreaker/v2"
)

// GuardConfig tunes a guarded engine. The zero value is ready for production.
type GuardConfig struct {
	// Failures is how many calls in a row must fail before calls are refused
	// without being tried; 5 unless set. NeverOpen for an engine of many
	// servers, where the failures of one must not close the door to the rest.
	Failures uint32
	// Pause is how long they are refused before one is tried again; 50 ms
	// unless set.
	Pause      time.Duration
	Registerer prometheus.Registerer
	Logger     *slog.Logger // slog.Default unless set
}

// NeverOpen keeps a guard from refusing calls; every call still ends by its
// deadline.
const NeverOpen = math.MaxUint32

// Guard wraps an engine on the network so that every call returns by its
// context's deadline, whatever the client library does, and so that a dead
// engine is not waited for by every caller. What it refuses is ErrUnavailable.
func Guard(store Store, config GuardConfig) Store {
	if config.Failures == 0 {
		config.Failures = 5
	}
	if config.Pause <= 0 {
		config.Pause = 50 * time.Millisecond
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	f := promauto.With(config.Registerer)
	open := f.NewGauge(prometheus.GaugeOpts{Name: "budgetd_reservation_breaker_open_ratio", Help: "1 while the engine is taken to be down and only probed, else 0."})
	opened := f.NewCounter(prometheus.CounterOpts{Name: "budgetd_reservation_breaker_opened_total", Help: "Times that the engine was found to be down."})
	g := &guarded{store: store}
	g.breaker = gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name:        "engine",
		MaxRequests: 1,
		Timeout:     config.Pause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= config.Failures },
		IsSuccessful: func(err error) bool {
			return !errors.Is(err, ErrUnavailable)
		},
		OnStateChange: func(_ string, from, to gobreaker.State) {
			// Half-open comes and goes with every probe: only the ends are news.
			switch {
			case from == gobreaker.StateClosed && to == gobreaker.StateOpen:
				open.Set(1)
				opened.Inc()
				config.Logger.Warn("the reservation engine does not answer; each limit's own rule applies")
			case to == gobreaker.StateClosed:
				open.Set(0)
				config.Logger.Info("the reservation engine answers again")
			}
		},
	})
	return g
}

type guarded struct {
	store   Store
	breaker *gobreaker.TwoStepCircuitBreaker[any]
}

// guard runs one call. When the context ends first the call goes on alone: its
// outcome is unknown, which is what ErrUnavailable says.
func guard[A any](ctx context.Context, g *guarded, call func(context.Context) (A, error)) (A, error) {
	var none A
	done, err := g.breaker.Allow()
	if err != nil {
		return none, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	type result struct {
		answer A
		err    error
	}
	results := make(chan result, 1)
	go func() {
		answer, err := call(ctx)
		results <- result{answer, err}
	}()
	select {
	case r := <-results:
		if r.err != nil && ctx.Err() != nil && !errors.Is(r.err, ErrUnavailable) {
			r.err = fmt.Errorf("%w: %w", ErrUnavailable, r.err)
		}
		done(unlessCancelled(ctx, r.err))
		return r.answer, r.err
	case <-ctx.Done():
		err := fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		done(unlessCancelled(ctx, err))
		return none, err
	}
}

// unlessCancelled keeps callers that hung up from opening the breaker.
func unlessCancelled(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return err
}

func (g *guarded) Reserve(ctx context.Context, r ReserveRequest) (ReserveAnswer, error) {
	return guard(ctx, g, func(ctx context.Context) (ReserveAnswer, error) { return g.store.Reserve(ctx, r) })
}

func (g *guarded) Refund(ctx context.Context, r RefundRequest) (RefundAnswer, error) {
	return guard(ctx, g, func(ctx context.Context) (RefundAnswer, error) { return g.store.Refund(ctx, r) })
}

func (g *guarded) Renew(ctx context.Context, r RenewRequest) (RenewAnswer, error) {
	return guard(ctx, g, func(ctx context.Context) (RenewAnswer, error) { return g.store.Renew(ctx, r) })
}

func (g *guarded) Confirm(ctx context.Context, r ConfirmRequest) (ConfirmVerdict, error) {
	return guard(ctx, g, func(ctx context.Context) (ConfirmVerdict, error) { return g.store.Confirm(ctx, r) })
}

func (g *guarded) Seed(ctx context.Context, s SeedRequest) (bool, error) {
	return guard(ctx, g, func(ctx context.Context) (bool, error) { return g.store.Seed(ctx, s) })
}

// Sweep is no call of a caller: a slow one must not close the door to them, nor
// take the place of the probe that opens it.
func (g *guarded) Sweep(ctx context.Context, max int) (SweepAnswer, error) {
	return g.store.Sweep(ctx, max)
}

func (g *guarded) Lookup(ctx context.Context, account string, id ID) (Record, error) {
	return guard(ctx, g, func(ctx context.Context) (Record, error) { return g.store.Lookup(ctx, account, id) })
}

func (g *guarded) Levels(ctx context.Context, account string, holds []Hold) ([]Level, time.Time, error) {
	type levels struct {
		levels []Level
		now    time.Time
	}
	l, err := guard(ctx, g, func(ctx context.Context) (levels, error) {
		shown, now, err := g.store.Levels(ctx, account, holds)
		return levels{shown, now}, err
	})
	return l.levels, l.now, err
}

func (g *guarded) Restore(ctx context.Context, r RestoreRequest) (RestoreVerdict, error) {
	return guard(ctx, g, func(ctx context.Context) (RestoreVerdict, error) { return g.store.Restore(ctx, r) })
}

func (g *guarded) Push(ctx context.Context, account string, usage []CounterUsage) error {
	_, err := guard(ctx, g, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, g.store.Push(ctx, account, usage)
	})
	return err
}

func (g *guarded) Leave(ctx context.Context, r LeaveRequest) error {
	_, err := guard(ctx, g, func(ctx context.Context) (struct{}, error) { return struct{}{}, g.store.Leave(ctx, r) })
	return err
}

func (g *guarded) Watch(account string, slots Counter, wake func()) (stop func()) {
	return g.store.Watch(account, slots, wake)
}

func (g *guarded) GiveBack(ctx context.Context, account string, holds []Hold) (GiveBackAnswer, error) {
	return guard(ctx, g, func(ctx context.Context) (GiveBackAnswer, error) { return g.store.GiveBack(ctx, account, holds) })
}

// Open is an operator's call: see Sweep.
func (g *guarded) Open(ctx context.Context, account, cursor string, most int) (OpenPage, error) {
	return g.store.Open(ctx, account, cursor, most)
}

// Audit is an auditor's or an operator's call: see Sweep.
func (g *guarded) Audit(ctx context.Context, r AuditRequest) (AuditAnswer, error) {
	return g.store.Audit(ctx, r)
}

func (g *guarded) Ping(ctx context.Context) error {
	return g.store.Ping(ctx)
}

func (g *guarded) Close() error { return g.store.Close() }
