package reservation_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/budgetd/budgetd/estimator/forecast"
	"github.com/budgetd/budgetd/estimator/forecast/lengthstore"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// shareForecasts merges all that waits.
func (r *rig) shareForecasts() {
	r.tb.Helper()
	for more := true; more; {
		var err error
		if more, err = r.ShareForecasts(context.Background()); err != nil {
			r.tb.Fatal(err)
		}
	}
}

// TestForecastsAreShared: of two brokers on one Redis and one PostgreSQL each
// holds what the other's Refunds taught, and so does one that starts anew.
func TestForecastsAreShared(t *testing.T) {
	r := newServerRig(t, forecastPolicy)
	db := stdlib.OpenDBFromPool(r.pool)
	t.Cleanup(func() { db.Close() })
	r.parts = func(parts *reservation.Parts) {
		parts.Forecasts = lengthstore.Open(db, lengthstore.Config{RowLocks: true})
	}
	start := func() *reservation.Broker {
		r.start(r.ledger)
		return r.Broker
	}
	held := func(b *reservation.Broker) quota.Amount {
		r.Broker = b
		r.clock.Add(time.Millisecond)
		grant := r.reserve(llmCall(4000, 4000))
		defer r.refund(grant.Reservation, usedOutput(200))
		return grant.Holds[0].Amount
	}
	first, second := start(), start()
	for range 2 * forecast.Enough {
		held(first)
	}
	r.shareForecasts() // of the first
	if n := held(second); n != 5000 {
		t.Fatalf("%d tokens are held before anything is shared", n)
	}
	r.shareForecasts()
	if n := held(second); n != 1200 {
		t.Errorf("%d tokens are held by a broker that shares what another learned, not 1200", n)
	}
	// The calls get longer: the first one hears of it from the second.
	r.Broker = second
	for range forecast.Samples {
		r.clock.Add(time.Millisecond)
		r.refund(r.reserve(llmCall(4000, 4000)).Reservation, usedOutput(900))
	}
	r.shareForecasts()
	r.clock.Add(forecast.ShareAge + time.Second)
	held(first)
	r.shareForecasts()
	if n := held(first); n != 1900 {
		t.Errorf("%d tokens are held after longer calls elsewhere, not 1900", n)
	}
	third := start()
	held(third)
	r.shareForecasts()
	if n := held(third); n != 1900 {
		t.Errorf("%d tokens are held after a restart, not 1900", n)
	}
	r.settled()
	r.balanced()
}

// TestForecastsWithoutTheirStore: a broker goes on learning for itself while what
// it learned can't be shared, and counts that.
func TestForecastsWithoutTheirStore(t *testing.T) {
	r := newRig(t, forecastPolicy)
	db, err := sql.Open("pgx", "postgres://127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	r.parts = func(parts *reservation.Parts) {
		parts.Forecasts = lengthstore.Open(db, lengthstore.Config{RowLocks: true})
	}
	r.start(r.ledger)
	for range 2 * forecast.Enough {
		r.refund(r.reserve(llmCall(4000, 4000)).Reservation, usedOutput(200))
	}
	if _, err := r.ShareForecasts(context.Background()); err == nil {
		t.Fatal("no error")
	}
	if n := r.metric("budgetd_reservation_forecast_shares_failed_total"); n != 1 {
		t.Errorf("%g failures are counted", n)
	}
	if n := r.reserve(llmCall(4000, 4000)).Holds[0].Amount; n != 1200 {
		t.Errorf("%d tokens are held, not 1200", n)
	}
	// It ends in time though nobody answers.
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	done := make(chan struct{})
	go func() { defer close(done); r.RunForecasts(ended) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}
