package spool

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/ledger/internal/collectors"
)

// measureWithin bounds what a scrape asks the file.
const measureWithin = time.Second

// metrics of a spool.
type metrics struct {
	spooled   prometheus.Counter
	drained   prometheus.Counter
	failures  prometheus.Counter
	filed     *prometheus.CounterVec
	filedRows prometheus.Gauge
	now       []prometheus.Collector // gauges that look when they are asked
}

func newMetrics(s *Spool) *metrics {
	name := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "budgetd", Subsystem: "ledger_spool", Name: name, Help: help}
	}
	counter := func(n, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(name(n, help)))
	}
	gauge := func(n, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts(name(n, help)), value)
	}
	m := &metrics{
		spooled:  counter("spooled_total", "Closings that were kept on this node's disk because the ledger did not answer."),
		drained:  counter("drained_total", "Closings of the spool of which the ledger has decided."),
		failures: counter("failures_total", "Writes of closings to the spool that failed; nothing was acknowledged."),
		filed: prometheus.NewCounterVec(prometheus.CounterOpts(name("filed_total",
			"Acknowledged closings that can't be in the ledger: another was there first (conflict), or it can't take them (refused).")), []string{"reason"}),
		filedRows: prometheus.NewGauge(prometheus.GaugeOpts(name("filed_closings", "Closings that are filed in the spool, as of the start and since."))),
		now: []prometheus.Collector{
			gauge("closings", "Closings in the spool that wait for the ledger.", func() float64 { return float64(s.held.count()) }),
			gauge("away", "1 while the ledger does not answer and closings are spooled.", func() float64 {
				if s.away.Load() {
					return 1
				}
				return 0
			}),
			gauge("bytes", "Bytes of the spool's file in use.", func() float64 {
				bytes, _ := s.measure()
				return float64(bytes)
			}),
			gauge("oldest_age_seconds", "Time since the first closing in the spool was spooled, 0 if there is none.", func() float64 {
				_, age := s.measure()
				return age.Seconds()
			}),
		},
	}
	for _, reason := range []string{reasonConflict, reasonRefused} {
		m.filed.WithLabelValues(reason) // shown as 0 from the start
	}
	return m
}

// register registers all or none.
func (m *metrics) register(registry prometheus.Registerer) error {
	all := append([]prometheus.Collector{m.spooled, m.drained, m.failures, m.filed, m.filedRows}, m.now...)
	return collectors.Register(registry, all...)
}

// measure asks the file for a scrape: zeros when it does not answer.
func (s *Spool) measure() (bytes int64, age time.Duration) {
	if s.enter() != nil {
		return 0, 0
	}
	defer s.calls.Done()
	ctx, cancel := context.WithTimeout(context.Background(), measureWithin)
	defer cancel()
	bytes, since, err := s.file.measure(ctx)
	if err != nil || since == 0 {
		return bytes, 0
	}
	return bytes, max(0, s.config.Now().Sub(time.UnixMicro(since)))
}
