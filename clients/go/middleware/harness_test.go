package middleware_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/middleware"
	"github.com/budgetd/budgetd/test/broker"
)

const policy = `
plans:
  api:
    limits:
      - {name: default, meter: requests, rate: 2/s, burst: 10, per: [client]}
      - {name: slow, meter: in_flight, max: 1, match: {route: GET /slow}}
      - {name: paced, meter: requests, rate: 1/s, match: {route: GET /paced}}
      - {name: pages, meter: pages, rate: 1/day, burst: 100}
accounts:
  api: {plan: api}
`

func TestMain(m *testing.M) { broker.Main(m) }

// newClient starts a broker and returns a client of it.
func newClient(t *testing.T) (*budget.Client, *broker.Broker) {
	t.Helper()
	b, key := broker.StartWith(t, policy, []string{"api"}, "--deadline", "2s")
	client, err := budget.New(b.URL, key)
	if err != nil {
		t.Fatal(err)
	}
	return client, b
}

// serve guards a mux and serves it.
func serve(t *testing.T, client *budget.Client, mux map[string]http.HandlerFunc, options ...middleware.Option) *httptest.Server {
	t.Helper()
	guard, err := middleware.New(client, options...)
	if err != nil {
		t.Fatal(err)
	}
	api := http.NewServeMux()
	for pattern, handler := range mux {
		api.Handle(pattern, guard(handler))
	}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	return server
}

// behind puts a reverse proxy in front of a server.
func behind(t *testing.T, server *httptest.Server) *httptest.Server {
	t.Helper()
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
		r.SetXForwarded()
		r.SetURL(target)
	}})
	t.Cleanup(proxy.Close)
	return proxy
}

// callerAt calls from an address of this machine.
func callerAt(t *testing.T, address string) *http.Client {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

type answer struct {
	status int
	header http.Header
	body   string
}

// get calls, with pairs of a header's name and value.
func get(t *testing.T, caller *http.Client, url string, header ...string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Add(header[i], header[i+1])
	}
	response, err := caller.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(body)}
}

// waitFor waits for a condition of another process.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s did not come", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
