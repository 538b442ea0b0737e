package proxy

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have the upstream's name and the status as labels: no account and no
// key.
type metrics struct {
	calls     *prometheus.CounterVec
	inFlight  prometheus.Gauge
	firstByte *prometheus.HistogramVec
	lost      prometheus.Counter
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
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "budgetd_proxy_refunds_lost_total", Help: "Refunds that the broker could not be told.",
		}),
	}
	for _, c := range []prometheus.Collector{m.calls, m.inFlight, m.firstByte, m.lost} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// watched is an answer whose status and first byte are counted.
type watched struct {
	http.ResponseWriter
	metrics  *metrics
	began    time.Time
	upstream string
	status   int
}

// Unwrap lets net/http flush and set deadlines.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader counts the first byte.
func (w *watched) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
		w.metrics.firstByte.WithLabelValues(w.upstream).Observe(time.Since(w.began).Seconds())
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes the header first, if it was not.
func (w *watched) Write(data []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	// A caller that does not read must not hold a stream for ever.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTimeout))
	return w.ResponseWriter.Write(data)
}

// end counts the call; one that was cut off before it had a status is none.
func (w *watched) end() {
	status := "none"
	if w.status != 0 {
		status = strconv.Itoa(w.status)
	}
	w.metrics.calls.WithLabelValues(w.upstream, status).Inc()
}
