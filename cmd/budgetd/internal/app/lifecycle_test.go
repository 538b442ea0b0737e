package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
	"github.com/budgetd/budgetd/test/broker"
)

// client is a generated client over h2c, with the demo key, whose connections
// end with the test.
func client(t testing.TB, a *app.App) budgetv1connect.BudgetServiceClient {
	t.Helper()
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return budgetv1connect.NewBudgetServiceClient(&http.Client{Transport: demoKey{transport}}, a.URL(), connect.WithGRPC())
}

type demoKey struct{ next http.RoundTripper }

func (d demoKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer demo")
	return d.next.RoundTrip(r)
}

// Stopping under load: calls under way finish, and every Refund that was
// acknowledged is in the ledger of the next start, to the token.
func TestShutdownKeepsWhatWasAcknowledged(t *testing.T) {
	c := demoConfig(t)
	a := begin(t, c, app.Options{})
	const workers = 8
	var (
		mu           sync.Mutex
		acknowledged int64
		refunds      int
		running      sync.WaitGroup
		enough       = make(chan struct{})
		once         sync.Once
	)
	for range workers {
		running.Go(func() {
			api := client(t, a)
			for {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				grant, err := api.Reserve(ctx, connect.NewRequest(&budgetv1.ReserveRequest{Amounts: map[string]int64{"pages": 9}}))
				if connect.CodeOf(err) == connect.CodeResourceExhausted {
					cancel()
					continue // 600 requests a minute
				}
				if err != nil {
					cancel()
					return
				}
				_, err = api.Refund(ctx, connect.NewRequest(&budgetv1.RefundRequest{
					ReservationId: grant.Msg.ReservationId,
					Usage:         &budgetv1.Usage{Amounts: map[string]int64{"pages": 7, "requests": 0}},
				}))
				cancel()
				if err != nil {
					return
				}
				mu.Lock()
				acknowledged += 7
				refunds++
				if refunds >= 100 {
					once.Do(func() { close(enough) })
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	running.Wait()

	books, err := sqliteledger.Open(ctx, sqliteledger.Config{Path: c.Data + "/budgetd.db"})
	if err != nil {
		t.Fatal(err)
	}
	defer books.Close()
	rows, err := books.AccountUsage(ctx, "demo", "", ledger.MaxAccountUsage)
	if err != nil {
		t.Fatal(err)
	}
	var kept int64
	for _, row := range rows {
		if row.Limit == "" && row.Meter == "pages" {
			kept += int64(row.Used)
		}
	}
	// What was answered must be there. What was cut off before its answer may
	// be: at most one Refund a worker.
	if kept < acknowledged || kept > acknowledged+7*workers {
		t.Errorf("the ledger has %d pages, %d were acknowledged", kept, acknowledged)
	}
}

// A reservation of before a restart can be refunded after it, and counts once.
func TestRefundAfterRestart(t *testing.T) {
	c := demoConfig(t)
	first := begin(t, c, app.Options{})
	_, grant, text := call(t, first, "demo", "Reserve", `{"amounts":{"cost":5000000000},"lease":"600s"}`)
	if grant["reservationId"] == nil {
		t.Fatal(text)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := first.Close(ctx); err != nil {
		t.Fatal(err)
	}
	second := begin(t, c, app.Options{})
	refund := fmt.Sprintf(`{"reservationId":%q,"usage":{"amounts":{"cost":2000000000}}}`, grant["reservationId"])
	for range 2 {
		if status, answer, text := call(t, second, "demo", "Refund", refund); status != http.StatusOK || fmt.Sprint(answer["charged"]) != "map[cost:2000000000 requests:1]" {
			t.Fatalf("%d %s", status, text)
		}
	}
	_, view, text := call(t, second, "demo", "GetQuota", `{}`)
	if totals, _ := view["totals"].(map[string]any); totals["cost"] != "2000000000" {
		t.Errorf("after two equal Refunds: %s", text)
	}
}

// Run ends when its context does, and says so.
func TestRun(t *testing.T) {
	c := demoConfig(t)
	out := &broker.Output{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, c, out) }()
	await(t, func() bool { return strings.Contains(out.String(), "Account and key are both") })
	cancel()
	select {
	case err := <-ended:
		if err != nil || app.ExitCode(err) != 0 {
			t.Errorf("%v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	if !strings.Contains(out.String(), "stopped") {
		t.Errorf("it does not say so: %s", out)
	}
}

// await polls until something is so.
func await(t testing.TB, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatal("it does not come true")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Two brokers on one data directory would each grant everything: the second is
// refused, and the first goes on. So is one whose port is taken.
func TestSecondBroker(t *testing.T) {
	c := demoConfig(t)
	first := begin(t, c, app.Options{})
	if _, err := app.Start(context.Background(), c, app.Options{}); err == nil || !strings.Contains(err.Error(), "another broker uses "+c.Data) || app.ExitCode(err) != 1 {
		t.Errorf("on the same directory: %v", err)
	}
	other := demoConfig(t)
	other.Listen = first.Addr()
	if _, err := app.Start(context.Background(), other, app.Options{}); err == nil || !strings.Contains(err.Error(), "listen: ") || !strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("on the same port: %v", err)
	}
	if status, _, text := call(t, first, "demo", "Reserve", `{"amounts":{"tokens":1}}`); status != http.StatusOK {
		t.Errorf("the first: %d %s", status, text)
	}
}

// A start that fails leaves nothing open: the next one works.
func TestStartFailsCleanly(t *testing.T) {
	c := demoConfig(t)
	for name, fault := range map[string]func(*config.Config){
		"prices":   func(c *config.Config) { c.Prices = c.Data + "/none.yaml" },
		"tls_cert": func(c *config.Config) { c.TLSCert, c.TLSKey = "none.pem", "none.pem" },
		"policy":   func(c *config.Config) { c.Demo, c.Policy = false, "none.yaml" },
		"data":     func(c *config.Config) { c.Data = "/dev/null/x" },
		"listen":   func(c *config.Config) { c.Listen = "0.0.0.0:0" },
	} {
		faulty := c
		fault(&faulty)
		if _, err := app.Start(context.Background(), faulty, app.Options{}); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s: %v", name, err)
		} else if code := app.ExitCode(err); (code == config.ExitCode) != (name != "data") {
			t.Errorf("%s: exit code %d", name, code)
		}
	}
	begin(t, c, app.Options{})
}

// Without demo there is one admin key, made once. Where no terminal shows it it is
// in a file that nobody else may read, and not in the log.
func TestFirstAdminKey(t *testing.T) {
	c := demoConfig(t)
	c.Demo, c.LogFormat = false, "json"
	out := &broker.Output{}
	first := begin(t, c, app.Options{Out: out})
	path := filepath.Join(c.Data, "admin-key")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	key := strings.TrimSpace(string(text))
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v: want a file of mode 0600", info.Mode(), err)
	}
	if strings.Contains(out.String(), "bk_") || !strings.Contains(out.String(), path) {
		t.Errorf("the log has the key, or not where it is: %s", out)
	}
	for line := range strings.Lines(out.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line of the log is not JSON: %s", line)
		}
	}
	if status, _, text := call(t, first, key, "GetQuota", `{"account":"nobody"}`); status != http.StatusNotFound {
		t.Errorf("the key does not work: %d %s", status, text)
	}
	if status, _, _ := call(t, first, "demo", "GetQuota", `{"account":"demo"}`); status != http.StatusUnauthorized {
		t.Errorf("the demo key works without demo: %d", status)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := first.Close(ctx); err != nil {
		t.Fatal(err)
	}
	again := &broker.Output{}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	begin(t, c, app.Options{Out: again})
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a second key is made: %s", again)
	}
	if !strings.Contains(again.String(), "there is no account yet") {
		t.Errorf("a broker without accounts does not say so: %s", again)
	}
}

// Calls that are under way when the stop begins get their answers; new ones find
// no listener; the port is free afterwards.
func TestConnectionsAfterClose(t *testing.T) {
	a := begin(t, demoConfig(t), app.Options{})
	api := client(t, a)
	if _, err := api.Reserve(context.Background(), connect.NewRequest(&budgetv1.ReserveRequest{})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	start := time.Now()
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	// The idle HTTP/2 connection must not hold the stop up to the grace.
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if _, err := api.Reserve(context.Background(), connect.NewRequest(&budgetv1.ReserveRequest{})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("after the stop: %v", err)
	}
	l, err := net.Listen("tcp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
