package rpc

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	"github.com/budgetd/budgetd/ledger/alerts"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
	"github.com/budgetd/budgetd/quota/policystore"
	"github.com/budgetd/budgetd/reservation"
)

// AdminOnly is the service that needs an admin key, as auth.Config.AdminOnly
// lists it.
const AdminOnly = "/" + budgetv1connect.AdminServiceName + "/"

// Bounds of [Config] and what holds when a field is 0.
const (
	DefaultMaxRequestBytes = 8 << 20
	DefaultMaxInFlight     = 4096
	DefaultMaxRetryAfter   = time.Hour
)

// Config tunes the services.
type Config struct {
	// MaxRequestBytes bounds one request, as it comes and after decompression:
	// DefaultMaxRequestBytes unless set.
	MaxRequestBytes int
	// MaxInFlight bounds the calls under way: DefaultMaxInFlight unless set. An
	// eighth of it is kept for Refund and Renew. Reports and the calls of
	// operators have bounds of their own, so that neither takes the other's
	// place.
	MaxInFlight int
	// QuotaForbidden answers a quota that is used up with permission_denied
	// (403) instead of resource_exhausted (429).
	QuotaForbidden bool
	// MaxRetryAfter is the longest that callers are told to wait for a quota:
	// DefaultMaxRetryAfter unless set.
	MaxRetryAfter time.Duration
	// Registerer takes the metrics; none unless set.
	Registerer prometheus.Registerer
	// Logger takes what an operator must know; slog.Default unless set.
	Logger *slog.Logger
}

// Parts are what the services work on.
type Parts struct {
	Broker   *reservation.Broker
	Auditor  *reservation.Auditor
	Policies *policystore.Store
	Watcher  *policystore.Watcher // what Broker has as its Policies
	Keys     *auth.Keys
	Signing  *auth.SigningKeys
	Alerts   *alerts.Store
}

// Service is one service and where it is mounted.
type Service struct {
	Name    string // "budget.v1.BudgetService"; "" for what is no service of gRPC
	Path    string // "/budget.v1.BudgetService/"
	Handler http.Handler
}

// base is what both services need.
type base struct {
	broker *reservation.Broker
	log    *slog.Logger
}

// service implements budgetv1connect.BudgetServiceHandler.
type service struct {
	base
	quotaForbidden bool
	maxRetryAfter  time.Duration
}

// NewServices returns the BudgetService and the AdminService, and what other
// protocols share with them. Connect, gRPC and gRPC-Web are served alike. who
// must have AdminOnly in its list.
func NewServices(parts Parts, who *auth.Authenticator, config Config) ([]Service, *Gateway, error) {
	if config.MaxRequestBytes == 0 {
		config.MaxRequestBytes = DefaultMaxRequestBytes
	}
	if config.MaxInFlight == 0 {
		config.MaxInFlight = DefaultMaxInFlight
	}
	if config.MaxRetryAfter == 0 {
		config.MaxRetryAfter = DefaultMaxRetryAfter
	}
	if config.MaxRequestBytes < 0 || config.MaxInFlight < 0 || config.MaxRetryAfter < 0 {
		return nil, nil, errors.New("MaxRequestBytes, MaxInFlight and MaxRetryAfter must not be negative")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	m, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, nil, fmt.Errorf("the metrics of the API: %w", err)
	}
	traffic := newTraffic(config.MaxInFlight, m)
	mark := newFaultMark()
	options := []connect.HandlerOption{
		// The gates run before anything of the body is read.
		connect.WithRequestGate(traffic.gate),
		connect.WithRequestGate(who.Gate()),
		connect.WithInterceptors(observer{m}),
		connect.WithRecover(recovery(m, config.Logger)),
		connect.WithInterceptors(traffic, deadlines{traffic}, mark),
		connect.WithCodec(jsonCodec{name: "json", mark: mark}),
		connect.WithCodec(jsonCodec{name: "json; charset=utf-8", mark: mark}),
		boundedGzip(config.MaxRequestBytes),
		connect.WithCompressMinBytes(1024),
	}
	shared := base{broker: parts.Broker, log: config.Logger}
	calls := &service{base: shared, quotaForbidden: config.QuotaForbidden, maxRetryAfter: config.MaxRetryAfter}
	path, handler := budgetv1connect.NewBudgetServiceHandler(calls, options...)
	adminPath, adminHandler := budgetv1connect.NewAdminServiceHandler(&admin{base: shared, parts: parts}, append(slices.Clip(options), connect.WithInterceptors(operatorsOnly{}))...)
	errorWriter := connect.NewErrorWriter(options...)
	return []Service{
			{budgetv1connect.BudgetServiceName, path, boundBody(config.MaxRequestBytes, errorWriter, explained(path, budgetMethods, errorWriter, holdable(handler)))},
			{budgetv1connect.AdminServiceName, adminPath, boundBody(config.MaxRequestBytes, errorWriter, explained(adminPath, adminMethods, errorWriter, unhurried(adminHandler)))},
		}, &Gateway{
			calls: calls, options: options, errorWriter: errorWriter, most: config.MaxRequestBytes,
			traffic: traffic, metrics: m, letIn: who.Gate(),
		}, nil
}
