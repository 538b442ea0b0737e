package alerts

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

func newWatcherMetrics(registerer prometheus.Registerer) (raised, dropped prometheus.Counter) {
	f := promauto.With(registerer)
	raised = f.NewCounter(prometheus.CounterOpts{
		Name: "budgetd_alerts_raised_total",
		Help: "Thresholds of quotas that this node was the first to see reached.",
	})
	dropped = f.NewCounter(prometheus.CounterOpts{
		Name: "budgetd_alerts_dropped_total",
		Help: "Thresholds that found the queue full, or the store away at the end. They are noticed again with the next change of their usage row.",
	})
	return raised, dropped
}

// The outcomes of an attempt to deliver: values of a metric's label.
const (
	outcomeDelivered = "delivered"
	outcomeRetried   = "retried" // it is tried again
	outcomeFailed    = "failed"  // it was given up
)

func newDelivererMetrics(registerer prometheus.Registerer) (deliveries *prometheus.CounterVec, pending prometheus.Gauge) {
	f := promauto.With(registerer)
	deliveries = f.NewCounterVec(prometheus.CounterOpts{
		Name: "budgetd_alerts_deliveries_total",
		Help: "Attempts of this node to deliver an alert, by outcome: delivered, retried (put off) or failed (given up).",
	}, []string{"outcome"})
	for _, outcome := range []string{outcomeDelivered, outcomeRetried, outcomeFailed} {
		deliveries.WithLabelValues(outcome) // shown as 0 from the start
	}
	pending = f.NewGauge(prometheus.GaugeOpts{
		Name: "budgetd_alerts_pending",
		Help: "Alerts in the outbox that all nodes share, waiting to be delivered.",
	})
	return deliveries, pending
}
