package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/alerts"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
	"github.com/budgetd/budgetd/migrations"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
	"github.com/budgetd/budgetd/quota/policystore"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/memstore"
)

// clock is a time that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock {
	return &clock{now: time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)}
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// server is the whole service over a real engine and a real ledger, on a real
// port.
type server struct {
	*clock
	url      string
	registry *prometheus.Registry
	logs     *bytes.Buffer
	keys     map[string]string // by name: "demo", "other", "both", "admin"
	store    reservation.Store
	watcher  *policystore.Watcher
	http     *http.Client
}

type setup struct {
	policy   *quota.Policy
	config   rpc.Config
	decorate func(reservation.Store) reservation.Store
	books    func(ledger.Ledger) ledger.Ledger
	broker   reservation.Config
	patience time.Duration // of the HTTP server with a call; 0: endless
}

func start(t testing.TB, s setup) *server {
	t.Helper()
	ctx := context.Background()
	srv := &server{clock: newClock(), registry: prometheus.NewRegistry(), logs: &bytes.Buffer{}, keys: map[string]string{}}
	logger := slog.New(slog.NewJSONHandler(&lockedWriter{to: srv.logs}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	path := filepath.Join(t.TempDir(), "budgetd.db")
	db, err := sqliteledger.OpenFile(path, 5*time.Second)
	must(err)
	t.Cleanup(func() { db.Close() })
	_, err = migrations.Up(ctx, db, migrations.SQLite)
	must(err)
	var books ledger.Ledger
	books, err = sqliteledger.Open(ctx, sqliteledger.Config{Path: path})
	must(err)
	t.Cleanup(func() { books.Close() })
	if s.books != nil {
		books = s.books(books)
	}

	memory, err := memstore.New(memstore.Config{Clock: srv.Now, Registerer: srv.registry})
	must(err)
	srv.store = memory
	if s.decorate != nil {
		srv.store = s.decorate(memory)
	}
	counter, err := estimator.New(estimator.Config{Registerer: srv.registry})
	must(err)
	signing, err := auth.OpenSigningKeys(ctx, db, auth.SigningConfig{Clock: srv.Now})
	must(err)
	t.Cleanup(func() { signing.Close() })
	keys, err := auth.NewKeys(db, auth.KeysConfig{Clock: srv.Now, Log: logger, Wait: 2 * time.Second})
	must(err)
	t.Cleanup(func() { keys.Close() })
	for name, key := range map[string]auth.NewKey{
		"demo":  {Name: "demo", Role: auth.RoleCaller, Accounts: []string{"demo"}},
		"other": {Name: "other", Role: auth.RoleCaller, Accounts: []string{"other"}},
		"both":  {Name: "both", Role: auth.RoleCaller, Accounts: []string{"demo", "other"}},
		"admin": {Name: "admin", Role: auth.RoleAdmin},
	} {
		key.By = "test"
		_, secret, err := keys.Create(ctx, key)
		must(err)
		srv.keys[name] = secret.Reveal()
	}
	who, err := auth.New(auth.Config{Keys: keys, AdminOnly: []string{rpc.AdminOnly}, Registerer: srv.registry})
	must(err)

	if s.policy == nil {
		s.policy = testPolicy(t)
	}
	policies := policystore.Open(db, srv.Now)
	_, err = policies.Apply(ctx, policyfile.FromPolicy(s.policy), policystore.Options{By: "test"})
	must(err)
	srv.watcher, err = policystore.Watch(ctx, policies, policystore.WatcherConfig{Log: logger})
	must(err)
	s.broker.Now, s.broker.Registerer, s.broker.Logger = srv.Now, srv.registry, logger
	if s.broker.Deadline == 0 {
		s.broker.Deadline = 5 * time.Second // the tests share a few cores with everything else
	}
	broker := reservation.NewBroker(reservation.Parts{
		Store: srv.store, Ledger: books, Policies: srv.watcher, Estimator: counter, Keys: signing,
	}, s.broker)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := broker.Close(ctx); err != nil {
			t.Errorf("close the broker: %v", err)
		}
	})
	s.config.Registerer, s.config.Logger = srv.registry, logger
	services, _, err := rpc.NewServices(rpc.Parts{
		Broker: broker, Auditor: reservation.NewAuditor(broker), Policies: policies, Watcher: srv.watcher, Keys: keys, Signing: signing,
		Alerts: alerts.Open(db, alerts.Config{}),
	}, who, s.config)
	must(err)
	mux := http.NewServeMux()
	for _, service := range services {
		mux.Handle(service.Path, service.Handler)
	}
	web := httptest.NewUnstartedServer(mux)
	web.Config.Protocols = &http.Protocols{}
	web.Config.Protocols.SetHTTP1(true)
	web.Config.Protocols.SetUnencryptedHTTP2(true)
	web.Config.ReadTimeout, web.Config.WriteTimeout = s.patience, s.patience
	web.Start()
	t.Cleanup(web.Close)
	srv.url, srv.http = web.URL, web.Client()
	return srv
}

type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

// testPolicy has the demo plan, an account other on it, and a plan of small
// limits whose headers are easy to say.
func testPolicy(t testing.TB) *quota.Policy {
	t.Helper()
	demo := quota.DemoPolicy()
	small := quota.Plan{Name: "small", Limits: []quota.Limit{
		{Name: "default", Meter: quota.MeterRequests, Kind: quota.KindBucket, Rate: quota.Rate{Amount: 2, Every: time.Second}, Burst: 10},
		{Name: "pages", Meter: "pages", Kind: quota.KindQuota, Max: 100, Period: quota.PeriodDay},
	}}
	policy, err := quota.NewPolicy(
		[]quota.Plan{demo.Plans["demo"], small}, nil,
		[]quota.Account{{Name: "demo", Plan: "demo"}, {Name: "other", Plan: "demo"}, {Name: "small", Plan: "small"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// answer is what curl would show.
type answer struct {
	status int
	header http.Header
	body   string
	json   map[string]any
}

// post sends JSON as curl does. key names one of the server's keys; "" sends
// none. method is one of BudgetService, or "Admin/" and one of AdminService.
func (s *server) post(t testing.TB, key, method, body string) answer {
	t.Helper()
	service := "/budget.v1.BudgetService/"
	if name, ok := strings.CutPrefix(method, "Admin/"); ok {
		service, method = "/budget.v1.AdminService/", name
	}
	request, err := http.NewRequest(http.MethodPost, s.url+service+method, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+s.keys[key])
	}
	response, err := s.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: response.StatusCode, header: response.Header, body: string(text)}
	if err := json.Unmarshal(text, &a.json); err != nil {
		t.Fatalf("%s %s: %d %q is not JSON: %v", method, body, a.status, text, err)
	}
	return a
}

// ok is post for a call that must be granted.
func (s *server) ok(t testing.TB, key, method, body string) answer {
	t.Helper()
	a := s.post(t, key, method, body)
	if a.status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, body, a.status, a.body)
	}
	return a
}

func (a answer) text(name string) string {
	text, _ := a.json[name].(string)
	return text
}

// remaining is what the answer says is left of a limit.
func (a answer) remaining(limit string) string {
	holds, _ := a.json["holds"].([]any)
	for _, hold := range holds {
		if hold, _ := hold.(map[string]any); hold["limit"] == limit {
			left, _ := hold["remaining"].(string)
			return left
		}
	}
	return ""
}

// fields are the InvalidField details of an error.
func (a answer) fields(t testing.TB) []*budgetv1.InvalidField {
	t.Helper()
	var fields []*budgetv1.InvalidField
	details, _ := a.json["details"].([]any)
	for _, detail := range details {
		detail, _ := detail.(map[string]any)
		if detail["type"] != "budget.v1.InvalidField" {
			continue
		}
		text, err := json.Marshal(detail["debug"])
		if err != nil {
			t.Fatal(err)
		}
		field := &budgetv1.InvalidField{}
		if err := protojson.Unmarshal(text, field); err != nil {
			t.Fatal(err)
		}
		fields = append(fields, field)
	}
	return fields
}

// client is a generated client with one of the server's keys.
func (s *server) client(key string, options ...connect.ClientOption) budgetv1connect.BudgetServiceClient {
	return budgetv1connect.NewBudgetServiceClient(s.http2(key), s.url, options...)
}

// adminClient is client for the AdminService.
func (s *server) adminClient(key string, options ...connect.ClientOption) budgetv1connect.AdminServiceClient {
	return budgetv1connect.NewAdminServiceClient(s.http2(key), s.url, options...)
}

func (s *server) http2(key string) *http.Client {
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: bearer{"Bearer " + s.keys[key], transport}}
}

type bearer struct {
	credential string
	next       http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", b.credential)
	return b.next.RoundTrip(r)
}
