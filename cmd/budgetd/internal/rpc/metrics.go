package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	shed     *prometheus.CounterVec
	panics   prometheus.Counter

	registerer prometheus.Registerer
}

// durationBuckets span a call in memory to one that met its deadline.
var durationBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "budgetd_rpc_calls_total",
			Help: "Calls that reached a handler, by method and code of the answer.",
		}, []string{"method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "budgetd_rpc_call_duration_seconds",
			Help:    "Time from when a call was decoded to its answer.",
			Buckets: durationBuckets,
		}, []string{"method"}),
		shed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "budgetd_rpc_shed_calls_total",
			Help: "Calls turned away because too many were under way.",
		}, []string{"method"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "budgetd_rpc_panics_total",
			Help: "Handlers that panicked. Always 0 unless there is a bug.",
		}),
		registerer: registerer,
	}
	if registerer == nil {
		return m, nil
	}
	for _, collector := range []prometheus.Collector{m.calls, m.duration, m.shed, m.panics} {
		if err := registerer.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// track exports the calls under way.
func (m *metrics) track(underWay func() float64) {
	if m.registerer == nil {
		return
	}
	m.registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "budgetd_rpc_in_flight_calls",
		Help: "Calls under way.",
	}, underWay))
}

// methodOf is the last part of a procedure: there are as many as methods, and
// no two services have one of the same name.
func methodOf(procedure string) string {
	return procedure[strings.LastIndexByte(procedure, '/')+1:]
}

// observer counts and times calls.
type observer struct{ metrics *metrics }

func (o observer) saw(procedure string, start time.Time, err error) {
	method, code := methodOf(procedure), "ok"
	if err != nil {
		code = connect.CodeOf(err).String()
	}
	o.metrics.calls.WithLabelValues(method, code).Inc()
	o.metrics.duration.WithLabelValues(method).Observe(time.Since(start).Seconds())
}

// WrapUnary observes a call.
func (o observer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		start := time.Now()
		response, err := next(ctx, request)
		o.saw(request.Spec().Procedure, start, err)
		return response, err
	}
}

func (o observer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler observes a stream from its begin to its end.
func (o observer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		start := time.Now()
		err := next(ctx, conn)
		o.saw(conn.Spec().Procedure, start, err)
		return err
	}
}

// recovery answers a handler that panicked: what happened is in the log, and
// not in the answer.
func recovery(m *metrics, log *slog.Logger) func(context.Context, connect.Spec, http.Header, any) error {
	return func(_ context.Context, spec connect.Spec, _ http.Header, panicked any) error {
		m.panics.Inc()
		log.Error("a handler panicked", "procedure", spec.Procedure, "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
		return connect.NewError(connect.CodeInternal, errInternal)
	}
}

var errInternal = errors.New("the broker met an error of its own; its log says more")
