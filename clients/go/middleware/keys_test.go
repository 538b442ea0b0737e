package middleware_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/middleware"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// clientsSeen are the values of the label "client" that the broker has charged.
func clientsSeen(t *testing.T, client *budget.Client) []string {
	t.Helper()
	answer, err := client.Service().ListUsage(context.Background(), connect.NewRequest(&budgetv1.ListUsageRequest{
		From: timestamppb.New(time.Now().Add(-48 * time.Hour)), To: timestamppb.New(time.Now().Add(48 * time.Hour)),
		Grain: budgetv1.UsageGrain_USAGE_GRAIN_TOTAL, GroupBy: []string{"client"}, Meters: []string{"requests"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, row := range answer.Msg.Rows {
		seen = append(seen, row.Labels["client"])
	}
	return seen
}

// Clients with API keys have buckets of their own from wherever they call, and
// their keys stay here.
func TestClientsByKey(t *testing.T) {
	client, _ := newClient(t)
	server := serve(t, client, map[string]http.HandlerFunc{"GET /": ok}, middleware.WithKeyHeader("Authorization"))
	wantRefusal(t, empty(t, callerAt(t, "127.0.0.2"), server.URL, "Authorization", "Bearer secret-1"))
	if a := get(t, callerAt(t, "127.0.0.2"), server.URL, "Authorization", "Bearer secret-2"); a.header.Get("RateLimit") != `"default";r=9;t=1` {
		t.Errorf("another key from the same address: %d %v", a.status, a.header)
	}
	if a := get(t, callerAt(t, "127.0.0.2"), server.URL); a.header.Get("RateLimit") != `"default";r=9;t=1` {
		t.Errorf("no key: %d %v", a.status, a.header)
	}
	// Each client's hash, of printf secret-1 | sha256sum.
	want := []string{"127.0.0.2", "key-f7e7c36e458e80e6b6a2c67d0a9ec09b", "key-f4b6bb6548129dacf11c1a9c4dffffef"}
	seen := clientsSeen(t, client)
	if len(seen) != len(want) {
		t.Fatalf("clients %v, want %v", seen, want)
	}
	for _, name := range want {
		if !strings.Contains(strings.Join(seen, " "), name) {
			t.Errorf("clients %v, want %s among them", seen, name)
		}
	}
}

// What can't be checked does not go on, and says why as far as it should.
func TestCallsThatCannotBeChecked(t *testing.T) {
	client, b := newClient(t)
	var log bytes.Buffer
	account := "api"
	server := serve(t, client, map[string]http.HandlerFunc{"GET /": func(http.ResponseWriter, *http.Request) {
		t.Error("the handler ran without a reservation")
	}}, middleware.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), middleware.WithRequest(func(*http.Request) budget.Request {
		return budget.Request{Account: account, Amounts: map[string]int64{"pages": 101}}
	}))
	if a := get(t, http.DefaultClient, server.URL); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "" || a.header.Get("Budget-Limited-By") != "pages" {
		t.Errorf("more than the limit ever has: %d %v", a.status, a.header)
	}
	account = "nobody's"
	if a := get(t, http.DefaultClient, server.URL); a.status != http.StatusInternalServerError || strings.Contains(a.body, account) || !strings.Contains(log.String(), "account") {
		t.Errorf("an unknown account: %d %s; log: %s", a.status, a.body, &log)
	}
	b.Kill()
	if a := get(t, http.DefaultClient, server.URL); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("no broker: %d %v", a.status, a.header)
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	client, err := budget.New("http://127.0.0.1:1", "key")
	if err != nil {
		t.Fatal(err)
	}
	for name, option := range map[string]middleware.Option{
		"trusted proxies": middleware.WithTrustedProxies("somewhere"),
		"client label":    middleware.WithClientLabel(""),
		"WithRequest":     middleware.WithRequest(nil),
		"WithRefuse":      middleware.WithRefuse(nil),
		"WithLogger":      middleware.WithLogger(nil),
		"settle wait":     middleware.WithSettleWait(-1),
	} {
		if _, err := middleware.New(client, option); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := middleware.New(nil); err == nil {
		t.Error("New without a client is accepted")
	}
}
