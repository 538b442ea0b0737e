package reservation

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// metrics of the room. Every label has a bounded set of values: limit names
// come from the policy and are cut off at maxLimitNames.
type metrics struct {
	decisions *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	refunds   *prometheus.CounterVec
	renewals  *prometheus.CounterVec
	shadows   *prometheus.CounterVec
	amounts   *prometheus.CounterVec
	closings  *prometheus.CounterVec

	expired         prometheus.Counter
	degraded        prometheus.Counter
	creditsLeft     prometheus.Counter
	confirmsDropped prometheus.Counter
	confirmsFailed  prometheus.Counter
	seeds           prometheus.Counter
	seedsFailed     prometheus.Counter
	sweepsFailed    prometheus.Counter
	sharesFailed    prometheus.Counter
	unreadable      prometheus.Counter
	refusedClosings prometheus.Counter
	unregistered    prometheus.Counter
	spooled         prometheus.Counter
	losses          prometheus.Counter
	restores        *prometheus.CounterVec
	audit           auditMetrics

	held *prometheus.HistogramVec

	limitNames boundedNames
}

// durationBuckets span a call in memory to one that met its deadline.
var durationBuckets = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5}

func newMetrics(registerer prometheus.Registerer) *metrics {
	f := promauto.With(registerer)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "budgetd_reservation_" + name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: "budgetd_reservation_" + name, Help: help}, labels)
	}
	return &metrics{
		audit:     newAuditMetrics(f),
		decisions: vector("decisions_total", "Answers to Reserve and Charge, by result, and for refusals by reason and limit.", "call", "result", "reason", "limit"),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "budgetd_reservation_call_duration_seconds", Help: "Time that a call took in the broker.", Buckets: durationBuckets,
		}, []string{"call"}),
		held: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "budgetd_reservation_slot_wait_seconds", Help: "Time that a Reserve was held for a slot, by what became of it: granted, refused (the wait was over, or something else refuses), left (its caller is gone), ended (the broker stops), failed, full (not held: as many are held as may be).", Buckets: waitBuckets,
		}, []string{"result"}),
		refunds:         vector("refunds_total", "Answers to Refund, by result.", "result"),
		renewals:        vector("renewals_total", "Answers to Renew, by result.", "result"),
		amounts:         vector("amounts_total", "Amounts by what became of them (held, charged, given_back, overrun; credited, credit_cut by gateways) and meter; cost is in nano-USD.", "what", "meter"),
		shadows:         vector("shadow_refusals_total", "Calls that were granted and that a shadow limit would have refused, by limit.", "limit"),
		closings:        vector("swept_closings_total", "Closings that a sweep posted to the ledger, by kind.", "kind"),
		expired:         counter("expired_total", "Reservations whose lease ended without a Refund."),
		degraded:        counter("degraded_grants_total", "Grants by the limits' own rules while the engine did not answer."),
		creditsLeft:     counter("credits_left_total", "Credits that the ledger has and whose buckets the engine did not take: they refill by themselves."),
		confirmsDropped: counter("confirms_dropped_total", "Confirmations that found the queue full or failed for a minute, and were left to a sweep."),
		confirmsFailed:  counter("confirms_failed_total", "Tries to confirm that the engine did not take."),
		seeds:           counter("seeds_total", "Quota counters that got their value from the ledger."),
		seedsFailed:     counter("seeds_failed_total", "Quota counters that could not get their value from the ledger."),
		sweepsFailed:    counter("sweeps_failed_total", "Sweeps that met an error."),
		sharesFailed:    counter("forecast_shares_failed_total", "Tries to merge forecasts of output with other brokers' that the database did not take."),
		unreadable:      counter("unreadable_total", "Records that could not be read back. Always 0 unless signing keys were lost."),
		refusedClosings: counter("refused_closings_total", "Closings that the ledger refused for what they say. They are tried again; look at the log."),
		unregistered:    counter("unregistered_total", "Open reservations that found the registry full and would not be brought back if the engine lost its data."),
		spooled:         counter("spooled_total", "Closings that were answered from this node's disk while the ledger was away."),
		losses:          counter("engine_losses_total", "Times that the engine was found to have lost data or to be rolled back."),
		restores:        vector("restored_total", "Open reservations that were to be brought back after the engine lost data, by what became of it.", "result"),
		limitNames:      boundedNames{known: map[string]bool{}},
	}
}

// waitBuckets span a slot that comes free at once to the longest wait.
var waitBuckets = []float64{.01, .05, .25, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}

// holding exports how many calls wait for a slot.
func (m *metrics) holding(registerer prometheus.Registerer, h *heldCalls) {
	promauto.With(registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "budgetd_reservation_held_calls", Help: "Reserves that this broker holds until slots come free for them.",
	}, func() float64 { return float64(h.size()) })
}

// registered exports how many reservations the registry has.
func (m *metrics) registered(registerer prometheus.Registerer, r *registry) {
	promauto.With(registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "budgetd_reservation_registered_reservations", Help: "Open reservations that this broker would bring back if the engine lost its data.",
	}, func() float64 { return float64(r.size()) })
}

// shadowRefused counts what shadow limits would have refused of a grant.
func (m *metrics) shadowRefused(limits []RefusedLimit, dryRun bool) {
	if dryRun {
		return
	}
	for i := range limits {
		m.shadows.WithLabelValues(m.limitNames.bounded(limits[i].Limit)).Inc()
	}
}

// restored counts one reservation: "restored", "known" (the engine had it),
// "ended" (its lease had) or "failed" (it is tried again).
func (m *metrics) restored(result string) { m.restores.WithLabelValues(result).Inc() }

func (m *metrics) decided(call string, took time.Duration, d Decision, err error) {
	m.duration.WithLabelValues(call).Observe(took.Seconds())
	var down *DownError
	switch {
	case d.Grant != nil && err == nil:
		result := "granted"
		switch {
		case d.Grant.Replayed:
			result = "replayed"
		case d.Grant.Degraded:
			result = "degraded"
		default:
			for _, h := range d.Grant.Holds {
				m.amounts.WithLabelValues("held", meterName(h.Meter)).Add(float64(h.Amount))
			}
		}
		m.decisions.WithLabelValues(call, result, "", "").Inc()
	case d.Refusal != nil:
		m.decisions.WithLabelValues(call, "refused", d.Refusal.Reason.String(), m.limitNames.bounded(d.Refusal.Limit)).Inc()
	case errors.As(err, &down):
		m.decisions.WithLabelValues(call, "unavailable", "", m.limitNames.bounded(down.Limit)).Inc()
	case errors.Is(err, ErrUnavailable) || errors.Is(err, ledger.ErrUnavailable):
		m.decisions.WithLabelValues(call, "unavailable", "", "").Inc()
	default:
		m.decisions.WithLabelValues(call, "rejected", "", "").Inc()
	}
}

func (m *metrics) refunded(took time.Duration, r Receipt, err error) {
	m.duration.WithLabelValues("refund").Observe(took.Seconds())
	result := "settled"
	switch {
	case errors.Is(err, ErrConflict):
		result = "conflict"
	case errors.Is(err, ErrUnavailable) || errors.Is(err, ledger.ErrUnavailable):
		result = "unavailable"
	case err != nil:
		result = "rejected"
	case r.Replayed:
		result = "replayed"
	case r.Late:
		result = "late"
	case r.Released:
		result = "released"
	}
	m.refunds.WithLabelValues(result).Inc()
	if err != nil || r.Replayed {
		return
	}
	for what, amounts := range map[string]quota.Amounts{"charged": r.Charged, "given_back": r.GivenBack, "overrun": r.Overrun} {
		for meter, amount := range amounts {
			m.amounts.WithLabelValues(what, meterName(meter)).Add(float64(amount))
		}
	}
}

func (m *metrics) credited(c Credited) {
	for what, amounts := range map[string]quota.Amounts{"credited": c.Given, "credit_cut": c.Cut} {
		for meter, amount := range amounts {
			m.amounts.WithLabelValues(what, meterName(meter)).Add(float64(amount))
		}
	}
}

func (m *metrics) renewed(state State) {
	result := "renewed"
	if state != StateHeld {
		result = "ended"
	}
	m.renewals.WithLabelValues(result).Inc()
}

func (m *metrics) reclaimed(n int) { m.expired.Add(float64(n)) }

func (m *metrics) finished(rank ledger.Rank) {
	kind := "refunded"
	if rank == ledger.RankExpired {
		kind = "expired"
	}
	m.closings.WithLabelValues(kind).Inc()
}

// meterName bounds the meter label: callers may invent meters.
func meterName(meter quota.Meter) string {
	switch meter {
	case quota.MeterRequests, quota.MeterTokens, quota.MeterInputTokens, quota.MeterOutputTokens, quota.MeterCost, quota.MeterInFlight:
		return string(meter)
	}
	return "custom"
}

// String returns the reason in lower snake case, as metrics and logs show it.
func (r Reason) String() string {
	switch r {
	case RateLimited:
		return "rate_limited"
	case ConcurrencyLimited:
		return "concurrency_limited"
	case QuotaExhausted:
		return "quota_exhausted"
	case ExceedsCapacity:
		return "exceeds_capacity"
	case QuotaHeld:
		return "quota_held"
	case EnvelopeExhausted:
		return "envelope_exhausted"
	case Banned:
		return "banned"
	}
	return "unknown"
}

// maxLimitNames bounds the limit label over the life of the process.
const maxLimitNames = 200

type boundedNames struct {
	mu    sync.Mutex
	known map[string]bool
}

func (b *boundedNames) bounded(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known[name] {
		return name
	}
	if len(b.known) == maxLimitNames {
		return "other"
	}
	b.known[name] = true
	return name
}
