package proxy

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/apptest"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The bucket does not refill while a test runs.
const (
	tokens = 1_000_000
	slots  = 1000
	policy = `
plans:
  demo:
    limits:
      - {name: tokens, meter: tokens, rate: 1/day, burst: 1000000}
      - {name: slots, meter: in_flight, max: 1000}
      - {name: paced, meter: requests, rate: 1/s, match: {route: paced}}
      - {name: hourly, meter: requests, rate: 1/h, match: {route: hourly}}
accounts: {demo: {plan: demo}}
`
	budgetKey   = "demo"
	providerKey = "sk-provider"
	chatPath    = "/openai/v1/chat/completions"
	// chat is 8 tokens of input, as OpenAI counts.
	chat   = `{"model":"gpt-4o-mini","max_completion_tokens":50,"messages":[{"role":"user","content":"Hello"}]}`
	stream = `{"model":"gpt-4o-mini","stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":50,"messages":[{"role":"user","content":"Hello"}]}`
)

// rig is a broker, a provider, and a proxy between them, all in this process.
type rig struct {
	t        *testing.T
	broker   *budget.Client // behind the gate
	gate     *gate
	provider *provider.Provider
	upstream *httptest.Server
	handler  atomic.Pointer[http.Handler] // of the upstream
	config   config.Proxy
	proxy    *Proxy
	server   *Server
	registry *prometheus.Registry
	log      *broker.Output
	http     *http.Client
}

// newRig starts all but the proxy.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, log: &broker.Output{}, registry: prometheus.NewRegistry()}
	address := apptest.Start(t, policy, app.Options{}).URL()
	t.Cleanup(http.DefaultClient.CloseIdleConnections) // of rig.broker
	r.gate = newGate(t, address)
	var err error
	if r.broker, err = budget.New(address, budgetKey); err != nil {
		t.Fatal(err)
	}
	r.provider = provider.New(providerKey, map[string]provider.Price{"gpt-4o-mini": {Input: 150_000_000, Output: 600_000_000}})
	r.serveAs(r.provider)
	r.upstream = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		(*r.handler.Load()).ServeHTTP(w, request)
	}))
	t.Cleanup(r.upstream.Close)
	flags := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	config.AddProxyFlags(flags)
	r.config, err = config.LoadProxy(flags, func(name string) (string, bool) {
		values := map[string]string{"XDG_CONFIG_HOME": t.TempDir(), "BUDGETD_PROXY_PROVIDER_KEY": "openai=" + providerKey + " anthropic=" + providerKey}
		return values[name], values[name] != ""
	})
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := url.Parse(r.upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.config.Listen, r.config.Broker, r.config.BrokerDeadline = "127.0.0.1:0", r.gate.url, 5*time.Second
	for name := range r.config.Upstreams {
		r.config.Upstreams[name] = upstream
	}
	r.http = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(r.http.CloseIdleConnections)
	return r
}

// start starts a proxy with what change makes of it, and closes it at the end of
// the test, unless that did.
func start(t *testing.T, change ...func(*rig)) *rig {
	t.Helper()
	r := newRig(t)
	r.begin(change...)
	return r
}

func (r *rig) begin(change ...func(*rig)) {
	r.t.Helper()
	var err error
	if r.proxy, err = New(r.config, r.registry, slog.New(slog.NewTextHandler(r.log, nil))); err != nil {
		r.t.Fatal(err)
	}
	for _, f := range change {
		f(r)
	}
	r.proxy.config = r.config
	if r.server, err = r.proxy.serve(r.t.Context(), r.registry); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		r.server.config.ShutdownGrace = 0
		_ = r.server.Close() // a test may have left Refunds without a broker
		if r.t.Failed() {
			r.t.Log(r.log)
		}
	})
}

// serveAs changes who answers for the provider.
func (r *rig) serveAs(h http.Handler) { r.handler.Store(&h) }

// gate stands before the broker.
type gate struct {
	url    string
	closed atomic.Bool                       // connections are cut off at once
	knows  atomic.Bool                       // keys; else none
	before atomic.Pointer[func(path string)] // is called before a question goes on
}

func newGate(t *testing.T, broker string) *gate {
	t.Helper()
	g := &gate{}
	g.knows.Store(true)
	to, err := url.Parse(broker)
	if err != nil {
		t.Fatal(err)
	}
	behind := &http.Transport{}
	onward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: behind}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before := g.before.Load(); before != nil {
			(*before)(r.URL.Path)
		}
		if g.closed.Load() {
			panic(http.ErrAbortHandler)
		}
		if !g.knows.Load() {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"code":"unauthenticated","message":"the API key was revoked"}`)
			return
		}
		onward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.Close(); behind.CloseIdleConnections() })
	g.url = server.URL
	return g
}

// request is a call of the proxy with the budget key.
func (r *rig) request(ctx context.Context, path, body string, script provider.Script) *http.Request {
	r.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.server.URL()+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+budgetKey)
	request.Header.Set(provider.Header, script.String())
	return request
}

// call makes a call and reads its answer to the end.
func (r *rig) call(path, body string, script provider.Script) (*http.Response, string) {
	r.t.Helper()
	a, err := r.http.Do(r.request(r.t.Context(), path, body, script))
	if err != nil {
		r.t.Fatal(err)
	}
	return a, read(r.t, a)
}

func read(t *testing.T, a *http.Response) string {
	t.Helper()
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatalf("%d: %v after %q", a.StatusCode, err, text)
	}
	return string(text)
}

// used waits until no reservation is open, and returns how many tokens were
// charged in all.
func (r *rig) used() int64 {
	r.t.Helper()
	var left int64
	await(r.t, "every reservation to end", func() bool {
		answer, err := r.broker.Service().GetQuota(r.t.Context(), connect.NewRequest(&budgetv1.GetQuotaRequest{}))
		if err != nil {
			r.t.Fatal(err)
		}
		free := int64(0)
		for _, limit := range answer.Msg.Limits {
			switch limit.Limit {
			case "tokens":
				left = limit.Remaining
			case "slots":
				free = limit.Remaining
			}
		}
		return free == slots
	})
	return tokens - left
}

// metric is the sum of a metric's values, of a histogram the number.
func (r *rig) metric(name string, labels ...string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	sum, found := 0.0, false
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.Metric {
			have := map[string]string{}
			for _, l := range m.Label {
				have[l.GetName()] = l.GetValue()
			}
			matches := true
			for i := 0; i < len(labels); i += 2 {
				matches = matches && have[labels[i]] == labels[i+1]
			}
			if matches {
				found = true
				sum += m.Counter.GetValue() + m.Gauge.GetValue() + float64(m.Histogram.GetSampleCount())
			}
		}
	}
	if !found && len(labels) == 0 {
		r.t.Fatalf("there is no metric %s", name)
	}
	return sum
}

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
