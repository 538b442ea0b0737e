package gateways

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/middleware"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/test/broker"
)

// Two nginx in a row: the outer one appends the client's address to what the client
// sent, the inner one the outer's. /v6 has the outer one see a client of IPv6.
const twoProxies = `
events {}
http {
	access_log off;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	server {
		listen OUTER;
		location / {
			proxy_pass http://INNER;
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
		}
		location /v6/ {
			set_real_ip_from 127.0.0.0/8;
			real_ip_header X-Client;
			proxy_pass http://INNER;
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
		}
		location /repeated/ {
			proxy_pass http://SERVICE; # the client's own lines, as it sent them
		}
	}
	server {
		listen INNER;
		location / {
			proxy_pass http://SERVICE;
			proxy_bind 127.0.0.9;
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
		}
	}
}
`

// The Middleware behind real proxies tells clients apart by the address that the
// outer one saw, whatever the clients claim.
func TestMiddlewareBehindNginx(t *testing.T) {
	b, key := broker.StartWith(t, `
plans:
  api:
    limits: [{name: default, meter: requests, rate: 1000/day, per: [client]}]
accounts: {api: {plan: api}}
`, []string{"api"}, "--deadline", "2s")
	client, err := budget.New(b.URL, key)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := middleware.New(client, middleware.WithTrustedProxies("127.0.0.1", "127.0.0.9"), middleware.WithSettleWait(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan []string, 1)
	service := httptest.NewServer(guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lines <- r.Header.Values("X-Forwarded-For")
	})))
	t.Cleanup(service.Close)
	outer, inner := freeAddress(t), freeAddress(t)
	dir := t.TempDir()
	config := strings.NewReplacer("OUTER", outer, "INNER", inner, "SERVICE", strings.TrimPrefix(service.URL, "http://")).Replace(twoProxies)
	if err := os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	runNginx(t, dir, outer)

	for _, c := range []struct {
		name, from, path string
		header           []string // names and values
		want             string
		chain            string // as the Middleware saw it, lines by "|"
	}{
		{"a client", "127.0.0.2", "/", nil, "127.0.0.2", "127.0.0.2, 127.0.0.1"},
		{"one that claims another's address", "127.0.0.3", "/", []string{"X-Forwarded-For", "127.0.0.2"}, "127.0.0.3", "127.0.0.2, 127.0.0.3, 127.0.0.1"},
		{"one that claims a proxy's, in two lines", "127.0.0.4", "/", []string{"X-Forwarded-For", "203.0.113.9", "X-Forwarded-For", "127.0.0.9, 127.0.0.1"}, "127.0.0.4", "203.0.113.9, 127.0.0.9, 127.0.0.1, 127.0.0.4, 127.0.0.1"},
		{"one of IPv6", "127.0.0.5", "/v6/", []string{"X-Client", "2001:db8:1:2::3"}, "2001:db8:1:2::/64", "2001:db8:1:2::3, 127.0.0.1"},
		{"its neighbour in the /64", "127.0.0.5", "/v6/", []string{"X-Client", "2001:db8:1:2:ffff::4"}, "2001:db8:1:2::/64", "2001:db8:1:2:ffff::4, 127.0.0.1"},
		{"a chain in repeated lines", "127.0.0.6", "/repeated/", []string{"X-Forwarded-For", "1.1.1.1, 203.0.113.7", "X-Forwarded-For", "127.0.0.9"}, "203.0.113.7", "1.1.1.1, 203.0.113.7|127.0.0.9"},
	} {
		before := chargedTo(t, client)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+outer+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(c.header); i += 2 {
			request.Header.Add(c.header[i], c.header[i+1])
		}
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.from)}}
		caller := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
		response, err := caller.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK || response.Header.Get("RateLimit-Policy") == "" {
			t.Fatalf("%s: %d %v", c.name, response.StatusCode, response.Header)
		}
		if chain := strings.Join(<-lines, "|"); chain != c.chain {
			t.Errorf("%s: nginx passed on %q, want %q", c.name, chain, c.chain)
		}
		after := chargedTo(t, client)
		if after[c.want] != before[c.want]+1 {
			t.Errorf("%s: counted for %v after %v, want one more of %s", c.name, after, before, c.want)
		}
	}
}

// chargedTo are the requests that the ledger has, by client.
func chargedTo(t *testing.T, client *budget.Client) map[string]int64 {
	t.Helper()
	answer, err := client.Service().ListUsage(context.Background(), connect.NewRequest(&budgetv1.ListUsageRequest{
		From: timestamppb.New(time.Now().Add(-48 * time.Hour)), To: timestamppb.New(time.Now().Add(48 * time.Hour)),
		Grain: budgetv1.UsageGrain_USAGE_GRAIN_TOTAL, GroupBy: []string{"client"}, Meters: []string{"requests"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	charged := map[string]int64{}
	for _, row := range answer.Msg.Rows {
		charged[row.Labels["client"]] += row.Used
	}
	return charged
}

func freeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return fmt.Sprint(listener.Addr())
}
