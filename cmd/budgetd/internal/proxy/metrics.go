package proxy

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics have the upstream's name and the status as labels: no account and no
// key.
type metrics struct {
	calls     *prometheus.CounterVec
	inFlight  prometheus.Gauge
	firstByte *prometheus.HistogramVec
	kept      prometheus.Counter
	lost      prometheus.Counter

	brokerUp   prometheus.Gauge
	unanswered prometheus.Counter
	unbudgeted prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "budgetd_proxy_calls_total", Help: "Calls that were answered, by upstream and status.",
		}, []string{"upstream", "status"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "budgetd_proxy_calls_in_flight", Help: "Calls under way.",
		}),
		firstByte: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "budgetd_proxy_first_byte_seconds", Help: "Time from a call's header to the first byte of its answer, by upstream.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"upstream"}),
		kept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "budgetd_proxy_refunds_kept_total", Help: "Refunds that no broker took at once, kept and tried again.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "budgetd_proxy_refunds_lost_total", Help: "Refunds that the broker could not be told, and that are not tried any more.",
		}),
		brokerUp: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "budgetd_proxy_broker_up", Help: "1: the broker answers, or was not asked yet. 0: it did not answer three questions in a row. While nobody calls it is asked every ten seconds.",
		}),
		unanswered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "budgetd_proxy_broker_unanswered_total", Help: "Questions to the broker that it did not answer.",
		}),
		unbudgeted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "budgetd_proxy_calls_unbudgeted_total", Help: "Calls that when_down let go on without a broker. What they used is in no ledger.",
		}),
	}
	m.brokerUp.Set(1)
	for _, c := range []prometheus.Collector{m.calls, m.inFlight, m.firstByte, m.kept, m.lost, m.brokerUp, m.unanswered, m.unbudgeted} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
