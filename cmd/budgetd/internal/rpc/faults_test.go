package rpc_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/reservation"
)

// away makes the calls of a real engine fail while it is set, as an engine that
// can't be reached does.
type away struct{ is atomic.Bool }

func (a *away) set(is bool) { a.is.Store(is) }

func (a *away) decorate(next reservation.Store) reservation.Store { return awayStore{next, a} }

type awayStore struct {
	reservation.Store
	away *away
}

func (s awayStore) Reserve(ctx context.Context, r reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
	if s.away.is.Load() {
		return reservation.ReserveAnswer{}, errAway
	}
	return s.Store.Reserve(ctx, r)
}

func (s awayStore) Refund(ctx context.Context, r reservation.RefundRequest) (reservation.RefundAnswer, error) {
	if s.away.is.Load() {
		return reservation.RefundAnswer{}, errAway
	}
	return s.Store.Refund(ctx, r)
}

func (s awayStore) Renew(ctx context.Context, r reservation.RenewRequest) (reservation.RenewAnswer, error) {
	if s.away.is.Load() {
		return reservation.RenewAnswer{}, errAway
	}
	return s.Store.Renew(ctx, r)
}

func (s awayStore) Levels(ctx context.Context, account string, holds []reservation.Hold) (levels []reservation.Level, now time.Time, err error) {
	if s.away.is.Load() {
		return nil, now, errAway
	}
	return s.Store.Levels(ctx, account, holds)
}

// slow does something before every Reserve of a real engine.
type slow struct {
	reservation.Store
	reserve func()
}

func (s slow) Reserve(ctx context.Context, r reservation.ReserveRequest) (reservation.ReserveAnswer, error) {
	s.reserve()
	return s.Store.Reserve(ctx, r)
}

// metric is the sum over all labels of a counter or gauge.
func metric(t testing.TB, from prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		return sum
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
