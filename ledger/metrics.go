package ledger

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/ledger/internal/collectors"
)

// groupMetrics are the metrics of a GroupCommitter.
type groupMetrics struct {
	batches  *prometheus.CounterVec
	closings *prometheus.CounterVec
	errors   *prometheus.CounterVec
	size     prometheus.Histogram
	seconds  prometheus.Histogram
	queue    prometheus.GaugeFunc
}

// The values of the labels.
const (
	outcomeCommitted   = "committed"   // a batch: its transaction is durable
	outcomeUnavailable = "unavailable" // a batch or a call: the ledger did not answer
	outcomeRefused     = "refused"     // a batch or a call: the ledger refused the data
	outcomePosted      = "posted"      // a closing was written
	outcomeDuplicate   = "duplicate"   // a closing that had been written before, or a lower rank
	outcomeBusy        = "busy"        // a call: the queue had no room
	outcomeClosed      = "closed"      // a call: after Close
	outcomeAbandoned   = "abandoned"   // a call: its context ended first
	outcomeInvalid     = "invalid"     // a call: out of bounds
)

func newGroupMetrics(g *GroupCommitter) groupMetrics {
	counter := func(name, help string, label string, values ...string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "budgetd", Subsystem: "ledger", Name: name, Help: help}, []string{label})
		for _, value := range values {
			vec.WithLabelValues(value) // shown as 0 from the start
		}
		return vec
	}
	return groupMetrics{
		batches: counter("batches_total", "Transactions of the group commit, by outcome.",
			"outcome", outcomeCommitted, outcomeUnavailable, outcomeRefused),
		closings: counter("closings_total", "Closings in committed transactions, by whether they were written or had been before.",
			"outcome", outcomePosted, outcomeDuplicate),
		errors: counter("errors_total", "Append calls that failed, by reason.",
			"reason", outcomeBusy, outcomeClosed, outcomeAbandoned, outcomeInvalid, outcomeRefused, outcomeUnavailable),
		size: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "budgetd", Subsystem: "ledger", Name: "batch_closings",
			Help: "Closings in one transaction of the group commit.", Buckets: prometheus.ExponentialBuckets(1, 2, 13),
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "budgetd", Subsystem: "ledger", Name: "append_seconds",
			Help: "Time of one transaction of the group commit, failed ones included.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
		queue: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "budgetd", Subsystem: "ledger", Name: "queue_closings",
			Help: "Closings that wait for a transaction of the group commit.",
		}, func() float64 { return float64(g.waitingClosings()) }),
	}
}

// register registers all or none.
func (m *groupMetrics) register(registry prometheus.Registerer) error {
	return collectors.Register(registry, m.batches, m.closings, m.errors, m.size, m.seconds, m.queue)
}

func (m *groupMetrics) countBatch(closings int, took time.Duration, verdicts []Verdict, err error) {
	m.seconds.Observe(took.Seconds())
	m.size.Observe(float64(closings))
	switch {
	case err == nil:
		m.batches.WithLabelValues(outcomeCommitted).Inc()
		posted := 0
		for i := range verdicts {
			if verdicts[i].Posted {
				posted++
			}
		}
		m.closings.WithLabelValues(outcomePosted).Add(float64(posted))
		m.closings.WithLabelValues(outcomeDuplicate).Add(float64(len(verdicts) - posted))
	case errors.Is(err, ErrUnavailable):
		m.batches.WithLabelValues(outcomeUnavailable).Inc()
	default:
		m.batches.WithLabelValues(outcomeRefused).Inc()
	}
}

func (m *groupMetrics) countError(err error) {
	reason := outcomeRefused
	switch {
	case err == nil:
		return
	case errors.Is(err, ErrBusy):
		reason = outcomeBusy
	case errors.Is(err, ErrClosed):
		reason = outcomeClosed
	case errors.Is(err, errAbandoned):
		reason = outcomeAbandoned
	case errors.Is(err, ErrUnavailable):
		reason = outcomeUnavailable
	case errors.Is(err, ErrInvalid):
		reason = outcomeInvalid
	}
	m.errors.WithLabelValues(reason).Inc()
}
