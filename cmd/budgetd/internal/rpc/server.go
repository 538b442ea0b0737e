package rpc

import (
	"errors"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
	"github.com/budgetd/budgetd/reservation"
)

// Bounds of [Config] and what holds when a field is 0.
const (
	DefaultMaxRequestBytes = 8 << 20
	DefaultMaxInFlight     = 4096
)

// Config tunes the service.
type Config struct {
	// MaxRequestBytes bounds one request, as it comes and after decompression:
	// DefaultMaxRequestBytes unless set.
	MaxRequestBytes int
	// MaxInFlight bounds the calls under way: DefaultMaxInFlight unless set. An
	// eighth of it is kept for Refund and Renew.
	MaxInFlight int
	// Registerer takes the metrics; none unless set.
	Registerer prometheus.Registerer
	// Logger takes what an operator must know; slog.Default unless set.
	Logger *slog.Logger
}

// service implements budgetv1connect.BudgetServiceHandler.
type service struct {
	broker *reservation.Broker
	log    *slog.Logger
}

// NewHandler returns the BudgetService and the path that it is mounted at.
// Connect, gRPC and gRPC-Web are served alike.
func NewHandler(broker *reservation.Broker, who *auth.Authenticator, config Config) (path string, handler http.Handler, err error) {
	if config.MaxRequestBytes == 0 {
		config.MaxRequestBytes = DefaultMaxRequestBytes
	}
	if config.MaxInFlight == 0 {
		config.MaxInFlight = DefaultMaxInFlight
	}
	if config.MaxRequestBytes < 0 || config.MaxInFlight < 0 {
		return "", nil, errors.New("MaxRequestBytes and MaxInFlight must not be negative")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	m, err := newMetrics(config.Registerer)
	if err != nil {
		return "", nil, err
	}
	traffic := newTraffic(config.MaxInFlight, m)
	mark := newFaultMark()
	options := []connect.HandlerOption{
		// The gates run before anything of the body is read.
		connect.WithRequestGate(traffic.gate),
		connect.WithRequestGate(who.Gate()),
		connect.WithInterceptors(observer(m)),
		connect.WithRecover(recovery(m, config.Logger)),
		connect.WithInterceptors(traffic, mark),
		connect.WithCodec(jsonCodec{name: "json", mark: mark}),
		connect.WithCodec(jsonCodec{name: "json; charset=utf-8", mark: mark}),
		boundedGzip(config.MaxRequestBytes),
		connect.WithCompressMinBytes(1024),
	}
	path, handler = budgetv1connect.NewBudgetServiceHandler(&service{broker: broker, log: config.Logger}, options...)
	return path, boundBody(config.MaxRequestBytes, connect.NewErrorWriter(options...), handler), nil
}
