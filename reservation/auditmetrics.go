package reservation

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// auditMetrics are those of the Auditors of one broker.
type auditMetrics struct {
	gaps     *prometheus.GaugeVec
	drift    *prometheus.GaugeVec
	checked  prometheus.Counter
	repaired *prometheus.CounterVec
	failed   prometheus.Counter
	unsummed prometheus.Counter
	round    prometheus.Gauge
}

func newAuditMetrics(f promauto.Factory) auditMetrics {
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "budgetd_audit_" + name, Help: help})
	}
	m := auditMetrics{
		gaps: f.NewGaugeVec(prometheus.GaugeOpts{Name: "budgetd_audit_gaps", Help: "Counters and usage rows that differ and could not be repaired, at the latest look at each account, by what differs: entries (row and its entries), row (engine and row), held or unposted (engine's counter and its records)."}, []string{"kind"}),
		drift: f.NewGaugeVec(prometheus.GaugeOpts{Name: "budgetd_audit_drift",
			Help: "Sum of the absolute differences that the latest look at each account found at its second look, before repairs, by the unit of the meter: nano_usd (cost), tokens, requests, or other for all other meters."}, []string{"unit"}),
		checked: counter("checked_total", "Counters and usage rows that were compared."),
		repaired: f.NewCounterVec(prometheus.CounterOpts{Name: "budgetd_audit_repaired_total",
			Help: "Differences that were repaired in the engine, by what differed."}, []string{"kind"}),
		failed:   counter("failed_total", "Looks at an account, or at what changed in the ledger, that failed."),
		unsummed: counter("unsummed_total", "Looks at an account with too many records to be added up."),
		round:    f.NewGauge(prometheus.GaugeOpts{Name: "budgetd_audit_round_timestamp_seconds", Help: "When the latest round over all accounts ended, in seconds since 1970; 0 before the first."}),
	}
	for kind := range gapKinds {
		m.gaps.WithLabelValues(kind.String())
		m.repaired.WithLabelValues(kind.String())
	}
	for unit := range driftUnits {
		m.drift.WithLabelValues(unit.String())
	}
	return m
}
