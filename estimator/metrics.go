package estimator

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the room's own.
type metrics struct {
	estimates *prometheus.CounterVec
	seconds   prometheus.Histogram
	unknown   prometheus.Counter
}

// newMetrics makes the metrics and registers them, if there is a registerer.
// Metrics that another estimator of the process registered there are shared.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		estimates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "budgetd_estimator_estimates_total",
			Help: "Estimates by how the input was counted: caller, tiktoken, rule, or refused.",
		}, []string{"method"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "budgetd_estimator_duration_seconds",
			Help:    "Time of one estimate.",
			Buckets: prometheus.ExponentialBuckets(10e-6, 4, 10), // 10 us to 2.6 s
		}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "budgetd_estimator_unknown_models_total",
			Help: "Look-ups of a model that the price catalogue does not know.",
		}),
	}
	if r == nil {
		return m, nil
	}
	var err error
	m.estimates, err = register(r, m.estimates, err)
	m.seconds, err = register(r, m.seconds, err)
	m.unknown, err = register(r, m.unknown, err)
	return m, err
}

func register[C prometheus.Collector](r prometheus.Registerer, c C, before error) (C, error) {
	if before != nil {
		return c, before
	}
	err := r.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	return c, err
}
