package policystore

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// pollResult is how a poll ended: a value of a metric's label.
type pollResult string

const (
	pollUnchanged   pollResult = "unchanged"
	pollLoaded      pollResult = "loaded"
	pollBroken      pollResult = "broken"
	pollUnavailable pollResult = "unavailable"
)

type watcherMetrics struct {
	polls       *prometheus.CounterVec // result
	broken      prometheus.Gauge
	version     prometheus.Gauge
	objects     *prometheus.GaugeVec // kind
	pins        *prometheus.GaugeVec // mode
	loadSeconds prometheus.Histogram
}

func newWatcherMetrics() *watcherMetrics {
	m := &watcherMetrics{
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "budgetd_quota_policy_polls_total",
			Help: "Looks at the version of the stored policy, by result: unchanged, loaded, broken (the one before stays in force) or unavailable.",
		}, []string{"result"}),
		broken: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "budgetd_quota_policy_broken",
			Help: "1 while the stored policy is one that this node can't use, and the one before stays in force.",
		}),
		version: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "budgetd_quota_policy_version",
			Help: "Version of the policy in force on this node.",
		}),
		objects: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "budgetd_quota_policy_objects",
			Help: "Plans, pools, accounts and models with prices of the policy in force, by kind.",
		}, []string{"kind"}),
		pins: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "budgetd_quota_policy_pins",
			Help: "Pins in force, which hold limits at a mode whatever the policy states, by mode: enforce, shadow or off.",
		}, []string{"mode"}),
		loadSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "budgetd_quota_policy_load_seconds",
			Help:    "Time to read, decode and validate a policy that was put in force.",
			Buckets: []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30},
		}),
	}
	for _, result := range []pollResult{pollUnchanged, pollLoaded, pollBroken, pollUnavailable} {
		m.polls.WithLabelValues(string(result))
	}
	return m
}

func (m *watcherMetrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.polls, m.broken, m.version, m.objects, m.pins, m.loadSeconds} {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}
