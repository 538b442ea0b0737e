package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/forwardauth"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/ops"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/ratelimit"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
	"github.com/budgetd/budgetd/estimator/forecast/lengthstore"
	"github.com/budgetd/budgetd/quota/policystore"
	"github.com/budgetd/budgetd/reservation"
)

// Run serves until ctx ends, or SIGINT or SIGTERM comes, or serving fails, and
// then stops as [App.Close] does, within the configuration's shutdown_grace. A
// second signal ends the process at once. out takes the banner and the log: it
// is stderr of a process.
func Run(ctx context.Context, c config.Config, out io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	a, err := Start(ctx, c, Options{Out: out})
	if err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop before it had started
		}
		return err
	}
	var failed error
	select {
	case <-ctx.Done():
		a.log.Info("stopping: calls under way finish", "grace", c.ShutdownGrace.String())
	case failed = <-a.failed:
		a.log.Error("serving failed; stopping", "error", failed)
	}
	stop() // from here on a signal has its default effect
	grace, cancel := context.WithTimeout(context.Background(), c.ShutdownGrace)
	defer cancel()
	if err := errors.Join(failed, a.Close(grace)); err != nil {
		return err
	}
	a.log.Info("stopped")
	return nil
}

// ExitCode is what a process ends with after an error of this package or of
// package config: 0 for none, config.ExitCode when what the operator wrote is
// at fault, else 1.
func ExitCode(err error) int {
	var fault *config.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &fault):
		return config.ExitCode
	}
	return 1
}

// Options are what a program that embeds a broker, or a test, may choose beside
// the configuration. The zero value is what a process uses.
type Options struct {
	// Out takes the banner and the log; nil: nothing.
	Out io.Writer
	// Clock is the clock of everything, the embedded engine's included; nil:
	// time.Now. Redis and PostgreSQL have clocks of their own.
	Clock func() time.Time
}

// App is a running broker.
type App struct {
	config    config.Config
	log       *slog.Logger
	registry  *prometheus.Registry
	readiness *ops.Readiness
	calls     calls
	api       *listener
	ops       *listener
	failed    chan error // a server that ended by itself

	background context.CancelFunc
	running    sync.WaitGroup // what background ends
	serving    sync.WaitGroup // what closing the servers ends
	broker     *reservation.Broker
	auditor    *reservation.Auditor
	closers    []closer // in the order in which things were opened

	close    sync.Once
	closeErr error
}

// closer undoes one step of the start.
type closer struct {
	what string
	do   func() error
}

// opened notes how to undo a step.
func (a *App) opened(what string, do func() error) {
	a.closers = append(a.closers, closer{what, do})
}

// undo closes everything that was opened, the last first.
func (a *App) undo() error {
	var errs []error
	for i := len(a.closers) - 1; i >= 0; i-- {
		if err := a.closers[i].do(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", a.closers[i].what, err))
		}
	}
	a.closers = nil
	return errors.Join(errs...)
}

// Start opens what the configuration names, checks it, and serves when it
// returns. The error lists everything that is wrong with the servers that the
// configuration names. ctx bounds the start only.
func Start(ctx context.Context, c config.Config, options Options) (_ *App, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if options.Out == nil {
		options.Out = io.Discard
	}
	if options.Clock == nil {
		options.Clock = time.Now
	}
	a := &App{
		config:   c,
		log:      NewLogger(options.Out, c),
		registry: prometheus.NewRegistry(),
		failed:   make(chan error, 2),
	}
	background, cancel := context.WithCancel(context.Background())
	a.background = cancel
	defer func() {
		if err != nil {
			cancel()
			a.running.Wait()
			a.undo() // what the start failed with says more
			a.serving.Wait()
		}
	}()
	if err := ops.RegisterProcess(a.registry); err != nil {
		return nil, err
	}
	named, err := readFiles(c)
	if err != nil {
		return nil, err
	}
	// Then ports: a second broker by mistake fails here, and touches nothing.
	if err := a.listen(ctx); err != nil {
		return nil, err
	}
	stores, engine, err := a.openServers(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := a.loadPolicy(ctx, stores, named.policy); err != nil {
		return nil, err
	}
	changed := make(chan struct{}, 1)
	watcher, err := policystore.Watch(ctx, stores.Policies, policystore.WatcherConfig{Wake: changed, Registerer: a.registry, Log: a.log})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", stores.Where, err)
	}
	signing, err := auth.OpenSigningKeys(ctx, stores.DB, auth.SigningConfig{Clock: options.Clock, Registerer: a.registry, Log: a.log})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", stores.Where, err)
	}
	a.opened("the signing keys", signing.Close)
	counter, err := a.newEstimator(watcher, named.prices)
	if err != nil {
		return nil, err
	}
	prices, err := a.newPriceFile()
	if err != nil {
		return nil, err
	}
	books, err := a.openLedger(ctx, stores, options.Clock)
	if err != nil {
		return nil, err
	}
	alerting, err := a.openAlerts(stores, watcher, options.Clock)
	if err != nil {
		return nil, err
	}
	a.broker = reservation.NewBroker(reservation.Parts{
		Store: engine, Ledger: books.ledger, Poster: books.poster, Policies: watcher, Estimator: counter, Keys: signing,
		Observer: alerting.watcher, Alerts: alerting.store,
		Forecasts: lengthstore.Open(stores.DB, lengthstore.Config{RowLocks: stores.pool != nil}),
	}, reservation.Config{
		Deadline:       c.Deadline,
		LedgerDeadline: c.LedgerDeadline,
		Lease:          c.Lease,
		Retention:      c.Retention,
		Registered:     a.registered(),
		AuditRate:      float64(orNone(c.AuditRate)),
		RetryJitter:    c.RetryJitter,
		MaxHeld:        orNone(min(c.MaxHeld, c.MaxInFlight/2)),
		Now:            options.Clock,
		Registerer:     a.registry,
		Logger:         a.log,
	})
	a.opened("the broker", a.closeBroker)
	a.auditor = reservation.NewAuditor(a.broker)
	a.readiness = ops.NewReadiness(
		ops.Check{Name: "engine", Do: engine.Ping},
		ops.Check{Name: "ledger", Do: books.ledger.Ping},
		ops.Check{Name: "policy", Do: func(context.Context) error {
			if len(watcher.Current().Accounts) == 0 {
				return errors.New("there is no account; \"budgetd apply\" brings in plans and accounts")
			}
			return nil
		}},
	)
	announceKey := func() {}
	if !c.Demo {
		if announceKey, err = a.ensureAdminKey(ctx, stores.Keys, options.Out); err != nil {
			return nil, fmt.Errorf("%s: %w", stores.Where, err)
		}
	}
	books.drain(ctx, a.log)
	parts := rpc.Parts{
		Broker: a.broker, Auditor: a.auditor, Policies: stores.Policies, Watcher: watcher, Keys: stores.Keys, Signing: signing,
		Alerts: alerting.store,
	}
	if err := a.serve(parts); err != nil {
		return nil, err
	}
	if books.spool != nil {
		a.goOn(func() { books.spool.Run(background) })
	}
	a.goOn(func() { a.maintain(background, books) })
	if prices != nil {
		a.goOn(func() { prices.follow(background, counter) })
	}
	a.goOn(func() { reservation.NewSweeper(a.broker).Run(background) })
	a.goOn(func() { a.auditor.Run(background) })
	a.goOn(func() { a.broker.RunForecasts(background) })
	a.runAlerts(background, alerting)
	a.goOn(func() { reservation.NewGrantKeeper(a.broker, stores.Policies).Run(background) })
	a.goOn(func() { _ = watcher.Run(background) }) // ends with the context's error
	if stores.pool != nil {
		a.goOn(func() { a.listenFor(stores, changed).run(background) })
	}
	a.goOn(func() { _ = signing.Run(background) })
	a.banner(options.Out, stores, watcher.Current())
	announceKey()
	return a, nil
}

// registered is how many open reservations the broker remembers. An engine in
// this process loses its data only with them.
func (a *App) registered() int {
	if !a.config.Redis.IsSet() {
		return -1
	}
	return orNone(a.config.RestoreMax)
}

// orNone turns a 0 that an operator stated, which would stand for the default,
// into what stands for none.
func orNone(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

func (a *App) goOn(work func()) { a.running.Go(work) }

// Addr is the address of the API, with the port that it got: "127.0.0.1:8080".
func (a *App) Addr() string { return a.api.Addr().String() }

// URL is the address of the API as clients take it: "http://127.0.0.1:8080".
func (a *App) URL() string {
	scheme := "http://"
	if a.config.TLSCert != "" {
		scheme = "https://"
	}
	return scheme + a.Addr()
}

// OpsAddr is the address of metrics, health and profiles.
func (a *App) OpsAddr() string {
	if a.ops == nil {
		return a.Addr()
	}
	return a.ops.Addr().String()
}

// Gatherer gives the metrics.
func (a *App) Gatherer() prometheus.Gatherer { return a.registry }

// Failed receives an error when a server ends by itself.
func (a *App) Failed() <-chan error { return a.failed }

// Close stops in the order that loses nothing which was acknowledged: it is not
// ready any more; calls that wait for slots are sent elsewhere; no connection is
// accepted; calls under way finish until ctx
// ends, and after that only what they have begun to write; confirmations reach
// the engine, closings the ledger; then the stores are closed. Closing again
// returns the first outcome.
func (a *App) Close(ctx context.Context) error {
	a.close.Do(func() { a.closeErr = a.stop(ctx) })
	return a.closeErr
}

// afterGrace is how long a call may go on after its connection was closed: its
// steps in the engine and the ledger have deadlines of their own.
func (a *App) afterGrace() time.Duration {
	return a.config.LedgerDeadline + 4*a.config.Deadline + time.Second
}

func (a *App) stop(ctx context.Context) error {
	a.readiness.Drain()
	a.broker.EndHeld()
	var errs []error
	if err := a.api.server.Shutdown(ctx); err != nil {
		a.log.Warn("calls are cut off: they did not finish within the grace", "under_way", a.calls.count())
		a.api.server.Close()
	}
	if !a.calls.drain(a.afterGrace()) {
		errs = append(errs, errors.New("calls did not end by their own deadlines"))
	}
	a.background()
	a.running.Wait()
	errs = append(errs, a.undo())
	a.serving.Wait()
	return errors.Join(errs...)
}

// confirmTimeout bounds the wait for confirmations at the end. The grace is for
// calls; what is confirmed to the engine now need not be posted again later.
const confirmTimeout = 5 * time.Second

func (a *App) closeBroker() error {
	ctx, cancel := context.WithTimeout(context.Background(), confirmTimeout)
	defer cancel()
	if err := a.broker.Close(ctx); err != nil {
		a.log.Warn("some closings are in the ledger and were not confirmed to the engine; a sweep confirms them later", "error", err)
	}
	return nil
}

// listener is a port with its server.
type listener struct {
	net.Listener
	server *http.Server
}

// listen takes the ports.
func (a *App) listen(ctx context.Context) error {
	open := func(setting, address string) (*listener, error) {
		l, err := ops.Listen(ctx, setting, address)
		if err != nil {
			return nil, err
		}
		a.opened(setting, func() error {
			if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil
		})
		return &listener{Listener: l}, nil
	}
	var err error
	if a.api, err = open("listen", a.config.Listen); err != nil {
		return err
	}
	if a.config.OpsListen != "" {
		a.ops, err = open("ops_listen", a.config.OpsListen)
	}
	return err
}

// serve starts the servers on the ports.
func (a *App) serve(parts rpc.Parts) error {
	who, err := auth.New(auth.Config{
		Keys: parts.Keys, Demo: a.config.Demo, AdminOnly: []string{rpc.AdminOnly}, Registerer: a.registry,
	})
	if err != nil {
		return err
	}
	services, gateway, err := rpc.NewServices(parts, who, rpc.Config{
		MaxRequestBytes: a.config.MaxRequestBytes,
		MaxInFlight:     a.config.MaxInFlight,
		QuotaForbidden:  a.config.QuotaStatus == http.StatusForbidden,
		MaxRetryAfter:   a.config.MaxRetryAfter,
		Registerer:      a.registry,
		Logger:          a.log,
	})
	if err != nil {
		return err
	}
	envoy, err := ratelimit.NewService(gateway, ratelimit.Naming(a.config.RateLimitAccount))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	var names []string
	for _, service := range append(services, envoy, forwardauth.NewService(gateway)) {
		mux.Handle(service.Path, a.calls.counted(service.Handler))
		if service.Name != "" {
			names = append(names, service.Name)
		}
	}
	ops.HandleGRPC(mux, a.readiness, names...)
	astray(mux)
	pages := ops.Pages{Gatherer: a.registry, Pprof: a.config.Pprof, Details: true, Notes: func() []string { return pinNotes(parts.Watcher.Current()) }}
	switch {
	case a.ops != nil:
		opsMux := http.NewServeMux()
		ops.Handle(opsMux, a.readiness, pages)
		a.ops.server = ops.NewServer(opsMux, nil, a.config.Pprof, a.log)
		ops.Handle(mux, a.readiness, ops.Pages{})
	case config.IsLoopback(a.config.Listen):
		ops.Handle(mux, a.readiness, pages)
	default:
		a.log.Warn("metrics are not served: listen is not loopback; set ops_listen")
		ops.Handle(mux, a.readiness, ops.Pages{})
	}
	a.api.server = ops.NewServer(mux, nil, a.config.Pprof && a.ops == nil, a.log)
	if a.config.TLSCert != "" {
		tls, err := ops.TLSConfig(a.config.TLSCert, a.config.TLSKey, a.log)
		if err != nil {
			return &config.Error{Setting: "tls_cert", Problem: err.Error()}
		}
		a.api.server = ops.NewServer(mux, tls, a.config.Pprof && a.ops == nil, a.log)
	} else if !config.IsLoopback(a.config.Listen) {
		a.log.Warn("API keys travel without TLS: set tls_cert and tls_key unless something in front of this broker ends TLS")
	}
	for _, l := range []*listener{a.api, a.ops} {
		if l == nil {
			continue
		}
		a.opened("a server", l.server.Close)
		a.serving.Go(func() {
			serve := l.server.Serve
			if l.server.TLSConfig != nil {
				serve = func(l2 net.Listener) error { return l.server.ServeTLS(l2, "", "") }
			}
			if err := serve(l.Listener); !errors.Is(err, http.ErrServerClosed) {
				a.failed <- fmt.Errorf("serve %s: %w", l.Addr(), err)
			}
		})
	}
	return nil
}

// lines joins errors as a list when there are several.
func lines(errs []error) error {
	if len(errs) < 2 {
		return errors.Join(errs...)
	}
	var texts []string
	for _, err := range errs {
		texts = append(texts, "  - "+strings.ReplaceAll(err.Error(), "\n", "\n    "))
	}
	return &listed{fmt.Sprintf("%d things are wrong:\n%s", len(errs), strings.Join(texts, "\n")), errs}
}

type listed struct {
	text string
	errs []error
}

func (l *listed) Error() string   { return l.text }
func (l *listed) Unwrap() []error { return l.errs }
