package backtest_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/ledger/alerts"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
	"github.com/budgetd/budgetd/quota/policyfile"
	"github.com/budgetd/budgetd/quota/policystore"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/redisstore"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // a server is asked before it listens
	servers.Main(m)
}

// setClock shows what it was last told.
type setClock struct{ at atomic.Pointer[time.Time] }

func (c *setClock) Now() time.Time   { return *c.at.Load() }
func (c *setClock) set(at time.Time) { c.at.Store(&at) }

// confirming tells of every closing that the engine has confirmed.
type confirming struct {
	reservation.Store
	confirmed chan struct{}
}

func (c *confirming) Confirm(ctx context.Context, r reservation.ConfirmRequest) (reservation.ConfirmVerdict, error) {
	verdict, err := c.Store.Confirm(ctx, r)
	if err == nil && verdict != reservation.ConfirmUnknown {
		c.confirmed <- struct{}{}
	}
	return verdict, err
}

// running is a broker as it is served, over an engine and a ledger file, but for
// its clock and the network before it.
type running struct {
	budgetv1connect.BudgetServiceClient
	clock     *setClock
	confirmed chan struct{}
	path      string // of its ledger
}

// runBroker starts a broker, with a policy in force, whose only account is acme.
func runBroker(t *testing.T, policy string, engine func(*testing.T, func() time.Time) reservation.Store) *running {
	t.Helper()
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r := &running{clock: &setClock{}, confirmed: make(chan struct{}, 1)}
	r.clock.set(time.Date(2023, 11, 16, 18, 0, 0, 0, time.UTC))
	quiet := slog.New(slog.DiscardHandler)

	path := filepath.Join(t.TempDir(), "budgetd.db")
	db, err := sqliteledger.OpenFile(path, 5*time.Second)
	must(err)
	r.path = path
	t.Cleanup(func() { db.Close() })
	_, err = migrations.Up(ctx, db, migrations.SQLite)
	must(err)
	books, err := sqliteledger.Open(ctx, sqliteledger.Config{Path: path})
	must(err)
	t.Cleanup(func() { books.Close() })
	signing, err := auth.OpenSigningKeys(ctx, db, auth.SigningConfig{})
	must(err)
	t.Cleanup(func() { signing.Close() })
	keys, err := auth.NewKeys(db, auth.KeysConfig{Log: quiet})
	must(err)
	t.Cleanup(func() { keys.Close() })
	_, secret, err := keys.Create(ctx, auth.NewKey{Name: "acme", Role: auth.RoleCaller, Accounts: []string{"acme"}, By: "test"})
	must(err)
	who, err := auth.New(auth.Config{Keys: keys, AdminOnly: []string{rpc.AdminOnly}})
	must(err)
	document, err := policyfile.Parse([]byte(policy))
	must(err)
	policies := policystore.Open(db, time.Now)
	_, err = policies.Apply(ctx, document, policystore.Options{By: "test"})
	must(err)
	watcher, err := policystore.Watch(ctx, policies, policystore.WatcherConfig{Log: quiet})
	must(err)
	counter, err := estimator.New(estimator.Config{Policy: watcher.Current})
	must(err)
	broker := reservation.NewBroker(reservation.Parts{
		Store: &confirming{engine(t, r.clock.Now), r.confirmed}, Ledger: books, Policies: watcher, Estimator: counter, Keys: signing,
	}, reservation.Config{Deadline: 30 * time.Second, LedgerDeadline: 30 * time.Second, Now: r.clock.Now, Logger: quiet})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := broker.Close(ctx); err != nil {
			t.Errorf("close the broker: %v", err)
		}
	})
	services, _, err := rpc.NewServices(rpc.Parts{
		Broker: broker, Auditor: reservation.NewAuditor(broker), Policies: policies, Watcher: watcher, Keys: keys, Signing: signing,
		Alerts: alerts.Open(db, alerts.Config{}),
	}, who, rpc.Config{Logger: quiet})
	must(err)
	mux := http.NewServeMux()
	for _, service := range services {
		mux.Handle(service.Path, service.Handler)
	}
	r.BudgetServiceClient = budgetv1connect.NewBudgetServiceClient(&http.Client{Transport: direct{"Bearer " + secret.Reveal(), mux}}, "http://broker")
	return r
}

// direct takes requests to a handler without a network between.
type direct struct {
	credential string
	to         http.Handler
}

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", d.credential)
	if r.Body == nil {
		r.Body = http.NoBody
	}
	answer := httptest.NewRecorder()
	d.to.ServeHTTP(answer, r)
	return answer.Result(), nil
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func onRedis(t *testing.T, clock func() time.Time) reservation.Store {
	t.Helper()
	options, err := redisstore.Options(servers.SharedRedis(t).URL() + "?dial_timeout=10s&read_timeout=10s&write_timeout=10s&pool_timeout=10s")
	if err != nil {
		t.Fatal(err)
	}
	engine, err := redisstore.Connect(options, redisstore.Config{Prefix: servers.Prefix(t), Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	return engine
}
