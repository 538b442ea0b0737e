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
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/ops"
)

// refundGrace is how long the Refunds of calls that were cut off may take.
const refundGrace = 15 * time.Second

// Run serves until ctx ends, or SIGINT or SIGTERM comes, or serving fails. Calls
// under way then get the configuration's shutdown_grace to finish; what is cut
// off after it is refunded for what was seen. A second signal ends the process
// at once.
func Run(ctx context.Context, c config.Proxy, log *slog.Logger) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	registry := prometheus.NewRegistry()
	if err := ops.RegisterProcess(registry); err != nil {
		return err
	}
	p, err := New(c, registry, log)
	if err != nil {
		return err
	}
	servers, failed, err := p.listen(ctx, registry)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		log.Info("stopping: calls under way finish", "grace", c.ShutdownGrace.String())
	case err = <-failed:
		log.Error("serving failed; stopping", "error", err)
	}
	stop() // from here on a signal has its default effect
	servers.readiness.Drain()
	grace, cancel := context.WithTimeout(context.Background(), c.ShutdownGrace)
	defer cancel()
	if shutErr := servers.api.Shutdown(grace); shutErr != nil {
		log.Warn("calls are cut off: they did not finish within the grace", "under_way", p.inFlight.Load())
		servers.api.Close()
	}
	if !p.drain(refundGrace) {
		err = errors.Join(err, errors.New("some calls that were cut off could not be refunded: the broker charges or gives back what they held when their leases end"))
	}
	if servers.ops != nil {
		servers.ops.Close()
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// drain waits for the calls under way and their Refunds, and says whether all
// have ended.
func (p *Proxy) drain(within time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	done := make(chan struct{})
	go func() { p.running.Wait(); close(done) }()
	select {
	case <-done:
		return p.budgeted.Wait(ctx) == nil
	case <-ctx.Done():
		return false
	}
}

// serving is what listen started.
type serving struct {
	api, ops  *http.Server
	readiness *ops.Readiness
}

// listen takes the ports and serves.
func (p *Proxy) listen(ctx context.Context, registry *prometheus.Registry) (*serving, <-chan error, error) {
	c := p.config
	s := &serving{readiness: ops.NewReadiness(ops.Check{Name: "broker", Do: p.ready})}
	listener, err := ops.Listen(ctx, "listen", c.Listen)
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	pages := ops.Pages{Gatherer: registry, Details: true}
	failed := make(chan error, 2)
	switch {
	case c.OpsListen != "":
		opsListener, err := ops.Listen(ctx, "ops_listen", c.OpsListen)
		if err != nil {
			listener.Close()
			return nil, nil, err
		}
		opsMux := http.NewServeMux()
		ops.Handle(opsMux, s.readiness, pages)
		s.ops = ops.NewServer(opsMux, nil, false, p.log)
		ops.Handle(mux, s.readiness, ops.Pages{})
		go func() {
			if err := s.ops.Serve(opsListener); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve %s: %w", opsListener.Addr(), err)
			}
		}()
	case config.IsLoopback(c.Listen):
		ops.Handle(mux, s.readiness, pages)
	default:
		p.log.Warn("metrics are not served: listen is not loopback; set ops_listen")
		ops.Handle(mux, s.readiness, ops.Pages{})
	}
	mux.Handle("/", p)
	// Streams take as long as they take: each write has a bound instead.
	const unboundedWrites = true
	s.api = ops.NewServer(mux, nil, unboundedWrites, p.log)
	serve, scheme := s.api.Serve, "http://"
	if c.TLSCert != "" {
		tls, err := ops.TLSConfig(c.TLSCert, c.TLSKey, p.log)
		if err != nil {
			listener.Close()
			return nil, nil, &config.Error{Setting: "tls_cert", Problem: err.Error()}
		}
		s.api = ops.NewServer(mux, tls, unboundedWrites, p.log)
		serve, scheme = func(l net.Listener) error { return s.api.ServeTLS(l, "", "") }, "https://"
	} else if !config.IsLoopback(c.Listen) {
		p.log.Warn("keys and prompts travel without TLS: set tls_cert and tls_key unless something in front of this proxy ends TLS")
	}
	go func() {
		if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve %s: %w", listener.Addr(), err)
		}
	}()
	p.log.Info("serving", "url", scheme+listener.Addr().String(), "broker", c.Broker,
		"upstreams", strings.Join(slices.Sorted(maps.Keys(c.Upstreams)), " "),
		"keys_held", strings.Join(slices.Sorted(maps.Keys(c.ProviderKeys)), " "), "version", ops.ThisBuild().Version)
	return s, failed, nil
}
