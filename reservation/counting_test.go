package reservation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/reservation"
)

// slowEstimator counts until it is told to stop.
type slowEstimator struct{ reservation.Estimator }

func (slowEstimator) EstimateContext(ctx context.Context, _ estimator.Call, _ time.Time) (estimator.Estimate, error) {
	<-ctx.Done()
	return estimator.Estimate{}, estimator.ErrBusy
}

// A text that is not counted in time is refused within Reserve's deadline, and
// the engine is not taken to be slow for it.
func TestReserveBoundsCounting(t *testing.T) {
	r := newRig(t, pricedPolicy)
	parts := r.Broker.Parts
	parts.Estimator = slowEstimator{parts.Estimator}
	broker := reservation.NewBroker(parts, reservation.Config{Now: r.clock.Now, Deadline: 30 * time.Millisecond, Logger: r.log()})
	defer broker.Close(context.Background())
	ask := call("gpt-4o", nil)
	d, err := broker.Reserve(context.Background(), ask)
	if !errors.Is(err, estimator.ErrBusy) || d.Grant != nil || d.Refusal != nil {
		t.Errorf("Reserve: %+v, %v", d, err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := broker.Estimate(ended, *ask.LLM); !errors.Is(err, estimator.ErrBusy) {
		t.Errorf("Estimate: %v", err)
	}
}
