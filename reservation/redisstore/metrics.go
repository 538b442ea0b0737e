package redisstore

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	latency   [scriptCount]prometheus.Observer
	errors    *prometheus.CounterVec
	loads     prometheus.Counter
	reclaimed prometheus.Counter
	legsLeft  prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "budgetd_redisstore_script_duration_seconds",
		Help:    "Time of one script call as the broker sees it, its retry included.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25},
	}, []string{"script"})
	m := &metrics{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "budgetd_redisstore_script_errors_total",
			Help: "Script calls that failed, by what went wrong (a fixed list, see explain in run.go).",
		}, []string{"script", "kind"}),
		loads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "budgetd_redisstore_script_loads_total",
			Help: "Times that the scripts were loaded into a node: at first use and after it had lost them or its data.",
		}),
		reclaimed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "budgetd_redisstore_reclaimed_total",
			Help: "Reservations whose lease was found ended, by calls and sweeps.",
		}),
		legsLeft: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "budgetd_redisstore_pool_legs_left_total",
			Help: "Pool legs on a Cluster that could not be settled when their reservation was; their leases end them, charged.",
		}),
	}
	for s := range scriptCount {
		m.latency[s] = latency.WithLabelValues(s.String())
	}
	if registerer == nil {
		return m, nil
	}
	return m, errors.Join(registerer.Register(latency), registerer.Register(m.errors), registerer.Register(m.loads), registerer.Register(m.reclaimed), registerer.Register(m.legsLeft))
}

func (m *metrics) failed(what script, kind string) {
	m.errors.WithLabelValues(what.String(), kind).Inc()
}
