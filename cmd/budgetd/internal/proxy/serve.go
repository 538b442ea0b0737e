package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/ops"
)

// refundGrace is how long the Refunds of calls that were cut off, and those that
// wait for the broker, may take.
const refundGrace = 15 * time.Second

// Server is a proxy that serves.
type Server struct {
	proxy     *Proxy
	config    config.Proxy
	log       *slog.Logger
	api, ops  *http.Server
	readiness *ops.Readiness
	url       string
	opsURL    string
	failed    chan error

	stopProbing context.CancelFunc
	probing     sync.WaitGroup
}

// Run serves until ctx ends, or SIGINT or SIGTERM comes, or serving fails, and
// then closes as [Server.Close] says. A second signal ends the process at once.
func Run(ctx context.Context, c config.Proxy, log *slog.Logger) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s, err := Start(ctx, c, log)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		log.Info("stopping: calls under way finish", "grace", c.ShutdownGrace.String())
	case err = <-s.failed:
		log.Error("serving failed; stopping", "error", err)
	}
	stop() // from here on a signal has its default effect
	return errors.Join(err, s.Close())
}

// Start takes the ports, and serves when it returns. ctx bounds the start only.
func Start(ctx context.Context, c config.Proxy, log *slog.Logger) (*Server, error) {
	registry := prometheus.NewRegistry()
	if err := ops.RegisterProcess(registry); err != nil {
		return nil, err
	}
	p, err := New(c, registry, log)
	if err != nil {
		return nil, err
	}
	return p.serve(ctx, registry)
}

// URL is the address of the proxy, with the port that it got.
func (s *Server) URL() string { return s.url }

// OpsURL is the address of metrics and health.
func (s *Server) OpsURL() string { return s.opsURL }

// Close accepts no connection any more and lets calls under way finish for the
// configuration's shutdown_grace. What is then cut off is refunded for what was
// seen, and Refunds that wait for the broker are delivered, for [refundGrace] at
// most. The error says what could not be delivered.
func (s *Server) Close() error {
	s.readiness.Drain()
	p := s.proxy
	grace, cancel := context.WithTimeout(context.Background(), s.config.ShutdownGrace)
	defer cancel()
	if err := s.api.Shutdown(grace); err != nil {
		s.log.Warn("calls are cut off: they did not finish within the grace", "under_way", p.inFlight.Load())
		s.api.Close()
	}
	refunds, cancel := context.WithTimeout(context.Background(), p.bounds.refunds)
	defer cancel()
	err := p.drain(refunds)
	if s.ops != nil {
		s.ops.Close()
	}
	s.stopProbing()
	s.probing.Wait()
	p.base.CloseIdleConnections()
	p.clients.http.CloseIdleConnections()
	if err == nil {
		s.log.Info("stopped")
	}
	return err
}

// drain waits for the calls under way and their Refunds, and delivers those that
// are kept.
func (p *Proxy) drain(ctx context.Context) error {
	var errs []error
	done := make(chan struct{})
	go func() { p.running.Wait(); close(done) }()
	select {
	case <-done:
		errs = append(errs, p.budgeted.Wait(ctx))
	case <-ctx.Done():
		errs = append(errs, ctx.Err())
	}
	if errs[0] != nil {
		errs[0] = fmt.Errorf("some calls that were cut off could not be refunded: the broker charges or gives back what they held when their leases end: %w", errs[0])
	}
	if lost := p.clients.close(ctx); lost > 0 {
		p.log.Error("the broker could not be told of some refunds before the end: it charges or gives back what they held when their leases end", "refunds_lost", lost)
		errs = append(errs, fmt.Errorf("refunds that are lost: %d: no broker took them within %v", lost, p.bounds.refunds))
	}
	return errors.Join(errs...)
}

// probe asks the broker while nobody calls, so that what the metrics and the log say
// of it is not old, until ctx ends.
func (p *Proxy) probe(ctx context.Context) {
	ticks := time.NewTicker(p.bounds.probe)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if p.watch.idle(p.bounds.probe) {
			bounded, cancel := context.WithTimeout(ctx, max(p.config.BrokerDeadline, time.Second))
			_ = p.brokerReady(bounded) // the watch has seen what came of it
			cancel()
		}
	}
}

// serve takes the ports and serves.
func (p *Proxy) serve(ctx context.Context, registry *prometheus.Registry) (*Server, error) {
	c := p.config
	s := &Server{
		proxy: p, config: c, log: p.log, failed: make(chan error, 2),
		readiness: ops.NewReadiness(ops.Check{Name: "broker", Do: p.ready}),
	}
	listener, err := ops.Listen(ctx, "listen", c.Listen)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	pages := ops.Pages{Gatherer: registry, Details: true}
	switch {
	case c.OpsListen != "":
		opsListener, err := ops.Listen(ctx, "ops_listen", c.OpsListen)
		if err != nil {
			listener.Close()
			return nil, err
		}
		opsMux := http.NewServeMux()
		ops.Handle(opsMux, s.readiness, pages)
		s.ops = ops.NewServer(opsMux, nil, false, p.log)
		ops.Handle(mux, s.readiness, ops.Pages{})
		s.opsURL = "http://" + opsListener.Addr().String()
		go func() {
			if err := s.ops.Serve(opsListener); !errors.Is(err, http.ErrServerClosed) {
				s.failed <- fmt.Errorf("serve %s: %w", opsListener.Addr(), err)
			}
		}()
	case config.IsLoopback(c.Listen):
		ops.Handle(mux, s.readiness, pages)
	default:
		p.log.Warn("metrics are not served: listen is not loopback; set ops_listen")
		ops.Handle(mux, s.readiness, ops.Pages{})
	}
	// Calls go to the proxy with the path that they were written with: a mux would
	// redirect one with doubled slashes, which not all SDKs follow.
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, page := mux.Handler(r); page != "" {
			mux.ServeHTTP(w, r)
			return
		}
		p.ServeHTTP(w, r)
	})
	// Streams take as long as they take: each write has a bound instead.
	const unboundedWrites = true
	s.api = ops.NewServer(handler, nil, unboundedWrites, p.log)
	serve, scheme := s.api.Serve, "http://"
	if c.TLSCert != "" {
		tls, err := ops.TLSConfig(c.TLSCert, c.TLSKey, p.log)
		if err != nil {
			listener.Close()
			return nil, &config.Error{Setting: "tls_cert", Problem: err.Error()}
		}
		s.api = ops.NewServer(handler, tls, unboundedWrites, p.log)
		serve, scheme = func(l net.Listener) error { return s.api.ServeTLS(l, "", "") }, "https://"
	} else if !config.IsLoopback(c.Listen) {
		p.log.Warn("keys and prompts travel without TLS: set tls_cert and tls_key unless something in front of this proxy ends TLS")
	}
	go func() {
		if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("serve %s: %w", listener.Addr(), err)
		}
	}()
	s.url = scheme + listener.Addr().String()
	if s.opsURL == "" {
		s.opsURL = s.url
	}
	probing, stop := context.WithCancel(context.Background())
	s.stopProbing = stop
	s.probing.Go(func() { p.probe(probing) })
	p.log.Info("serving", "url", s.url, "broker", c.Broker,
		"upstreams", strings.Join(slices.Sorted(maps.Keys(c.Upstreams)), " "),
		"keys_held", strings.Join(slices.Sorted(maps.Keys(c.ProviderKeys)), " "), "version", ops.ThisBuild().Version)
	return s, nil
}
