package auth

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type keyMetrics struct {
	cache         *prometheus.CounterVec // how: fresh, asked, unknown, stale, unavailable
	lookupSeconds prometheus.Histogram
	cached        prometheus.Gauge
}

func newKeyMetrics(r prometheus.Registerer) (*keyMetrics, error) {
	m := &keyMetrics{
		cache: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "budgetd_auth_key_lookups_total",
			Help: "API keys looked up, by how they were answered: fresh (remembered), asked (from the store), unknown (remembered as such), stale (remembered, while the store does not answer) or unavailable.",
		}, []string{"how"}),
		lookupSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "budgetd_auth_store_lookup_seconds",
			Help:    "Time that the store took to look one API key up, failures included.",
			Buckets: []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2},
		}),
		cached: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "budgetd_auth_keys_remembered",
			Help: "API keys that this node remembers.",
		}),
	}
	for _, how := range []string{"fresh", "asked", "unknown", "stale", "unavailable"} {
		m.cache.WithLabelValues(how)
	}
	return m, register(r, m.cache, m.lookupSeconds, m.cached)
}

type signingMetrics struct {
	refreshes *prometheus.CounterVec // result: ok, error
	keys      prometheus.Gauge
}

func newSigningMetrics() *signingMetrics {
	m := &signingMetrics{
		refreshes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "budgetd_auth_signing_refreshes_total",
			Help: "Times that the signing keys were read from the store, by result: ok or error.",
		}, []string{"result"}),
		keys: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "budgetd_auth_signing_keys",
			Help: "Signing keys that verify reservation ids.",
		}),
	}
	for _, result := range []string{"ok", "error"} {
		m.refreshes.WithLabelValues(result)
	}
	return m
}

// callResults are the values of the label of budgetd_auth_calls_total.
var callResults = []string{"ok", "exempt", "missing", "invalid", "revoked", "expired", "forbidden", "unavailable", "cancelled"}

func newCallMetrics(r prometheus.Registerer) (*prometheus.CounterVec, error) {
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "budgetd_auth_calls_total",
		Help: "Calls that asked to be let in, by result.",
	}, []string{"result"})
	for _, result := range callResults {
		calls.WithLabelValues(result)
	}
	return calls, register(r, calls)
}

func register(r prometheus.Registerer, collectors ...prometheus.Collector) error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, c := range collectors {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}
