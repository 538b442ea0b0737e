package reservation_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/alerts"
	"github.com/budgetd/budgetd/ledger/pgledger"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/redisstore"
)

func alertingPolicy(amount int) string {
	return fmt.Sprintf(`
plans:
  pro:
    quotas: [{name: budget, meter: tokens, amount: %d, period: month, alert_at: [80%%, 100%%]}]
accounts:
  acme: {plan: pro}
`, amount)
}

var webhookSecret = []byte("a secret that only the test and the broker know")

// webhook is a receiver that checks signatures and keeps what it got.
type webhook struct {
	*httptest.Server
	mu  sync.Mutex
	got []map[string]any // data of the messages
}

func newWebhook(t *testing.T) *webhook {
	h := &webhook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mac := hmac.New(sha256.New, webhookSecret)
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("webhook-signature") != want {
			t.Errorf("signature %q, want %q", r.Header.Get("webhook-signature"), want)
		}
		var message struct {
			Type string
			Data map[string]any
		}
		if err := json.Unmarshal(body, &message); err != nil || message.Type != "quota.alert" {
			t.Errorf("%s: %v", body, err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, message.Data)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *webhook) messages() []map[string]any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]map[string]any(nil), h.got...)
}

// node is one broker of a fleet, with its own connections, that watches usage
// and tells the webhook.
type node struct {
	*reservation.Broker
	alerts *alerts.Store
	stop   func()
}

// newNode starts another broker on the servers of the rig.
func newNode(t *testing.T, r *serverRig, url string) *node {
	t.Helper()
	opts, err := redisstore.Options(r.redis.URL() + "?dial_timeout=10s&read_timeout=10s&write_timeout=10s&pool_timeout=10s")
	if err != nil {
		t.Fatal(err)
	}
	engine, err := redisstore.Connect(opts, redisstore.Config{Clock: r.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	books, err := pgledger.New(context.Background(), pgledger.Pools{Main: r.pool}, r.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	committer, err := ledger.NewGroupCommitter(books, ledger.GroupConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { committer.Close() })
	db := stdlib.OpenDBFromPool(r.pool)
	t.Cleanup(func() { db.Close() })
	n := &node{alerts: alerts.Open(db, alerts.Config{RowLocks: true})}
	deliverer, err := alerts.NewDeliverer(alerts.DelivererConfig{Store: n.alerts, URL: url, Secrets: [][]byte{webhookSecret}, Clock: r.clock.Now, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	watcher := alerts.NewWatcher(alerts.WatcherConfig{Policies: r.policy, Store: n.alerts, Deliver: true, Raised: deliverer.Wake, Clock: r.clock.Now, Log: testLog(t)})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { watcher.Run(ctx) })
	running.Go(func() { deliverer.Run(ctx) })
	n.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(n.stop)
	n.Broker = reservation.NewBroker(
		reservation.Parts{
			Store: engine, Ledger: committedTogether{books, committer}, Policies: r.policy, Estimator: oneEstimator(), Keys: oneKey,
			Observer: watcher, Alerts: n.alerts,
		},
		reservation.Config{Now: r.clock.Now, Deadline: 10 * time.Second},
	)
	t.Cleanup(func() { n.Broker.Close(context.Background()) })
	return n
}

// testLog goes into the test's own output.
func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// committedTogether is a ledger whose Appends are gathered into few transactions.
type committedTogether struct {
	ledger.Ledger
	appender ledger.Appender
}

func (g committedTogether) Append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	return g.appender.Append(ctx, closings)
}

// A hundred Refunds at once, at three brokers, cross 80%: one alert, told once.
// It is raised again in the next period, and not when the limit is raised.
func TestCrossedOnceByThreeBrokers(t *testing.T) {
	r := newServerRig(t, alertingPolicy(1000))
	hook := newWebhook(t)
	var nodes []*node
	for range 3 {
		nodes = append(nodes, newNode(t, r, hook.URL))
	}
	use := func(calls int, held, actual quota.Amount) {
		t.Helper()
		var ids []string
		for range calls {
			ids = append(ids, r.reserve(tokens(held)).Reservation)
		}
		var refunds sync.WaitGroup
		for i, id := range ids {
			refunds.Go(func() {
				if _, err := nodes[i%len(nodes)].Refund(t.Context(), id, used(actual)); err != nil {
					t.Error(err)
				}
			})
		}
		refunds.Wait()
	}
	told := func(want ...string) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for {
			pending, err := nodes[0].alerts.Pending(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, data := range hook.messages() {
				got = append(got, fmt.Sprintf("%v%% of %v in %v", data["percent"], data["amount"], data["period"]))
			}
			if pending == 0 && len(got) >= len(want) || time.Now().After(deadline) {
				if strings.Join(got, ", ") != strings.Join(want, ", ") || pending != 0 {
					t.Fatalf("told: %v, %d wait; want %v", got, pending, want)
				}
				return
			}
			time.Sleep(time.Millisecond) // real HTTP: wait on the condition, with a deadline
		}
	}

	use(100, 10, 9) // 900 of 1,000
	told("80% of 1000 in m2026-11-01")
	page, err := nodes[0].alerts.List(t.Context(), alerts.Query{Limit: 10})
	if err != nil || len(page.Alerts) != 1 || page.Alerts[0].Attempts != 1 || page.Alerts[0].State != alerts.StateDelivered {
		t.Fatalf("%+v, %v; want one alert, delivered at the first attempt", page, err)
	}
	if data := hook.messages()[0]; data["account"] != "acme" || data["limit"] != "budget" || data["meter"] != "tokens" {
		t.Errorf("%+v", data)
	}
	view, err := nodes[2].Overview(t.Context(), "acme", nil)
	if err != nil || len(view.Limits[0].Alerts) != 1 || view.Limits[0].Alerts[0].Percent != 80 || !view.Limits[0].Alerts[0].RaisedAt.Equal(r.clock.Now()) {
		t.Errorf("%+v, %v; want the alert at each node", view.Limits, err)
	}

	// Raised by half: 80% of it is crossed again, and was told. 100% was not.
	r.setPolicy(alertingPolicy(1500))
	use(31, 15, 10) // 1,210 of 1,500
	use(4, 70, 73)  // 1,502
	told("80% of 1000 in m2026-11-01", "100% of 1500 in m2026-11-01")

	r.clock.Set(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	use(12, 100, 100)
	told("80% of 1000 in m2026-11-01", "100% of 1500 in m2026-11-01", "80% of 1500 in m2026-12-01")
}

// A node dies between a closing and its alert, and no other call follows:
// whichever node audits the account next raises it.
func TestAlertOfADeadNode(t *testing.T) {
	r := newRig(t, alertingPolicy(1000))
	r.refund(r.reserve(tokens(1000)).Reservation, used(1000)) // by a node that raised nothing

	store, watcher := openAlerts(t, r)
	r.parts = func(p *reservation.Parts) { p.Observer, p.Alerts = watcher, store }
	r.start(r.ledger)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { watcher.Run(ctx) })
	running.Go(func() { reservation.NewAuditor(r.Broker).Run(ctx) })
	defer running.Wait()
	defer cancel()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) { // real work in the background
		got := r.overview(nil)["budget"].Alerts
		if len(got) == 2 && got[0].Percent == 80 && got[1].Percent == 100 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("alerts %+v, want 80%% and 100%%", got)
		}
	}
}

// Every way in which a closing reaches the ledger is heard of.
func TestWhatIsObserved(t *testing.T) {
	var heard observed
	r := newRig(t, alertingPolicy(1000))
	r.parts = func(p *reservation.Parts) { p.Observer = &heard }
	r.start(r.ledger)
	want := func(what string, amount quota.Amount) {
		t.Helper()
		if got := heard.take(); got != amount {
			t.Errorf("%s: heard of %d tokens, want %d", what, got, amount)
		}
	}
	r.refund(r.reserve(tokens(100)).Reservation, used(10))
	want("a Refund", 10)
	if _, err := r.Charge(t.Context(), reservation.Spend{Account: "acme", Amounts: quota.Amounts{"tokens": 20}}); err != nil {
		t.Fatal(err)
	}
	want("a Charge", 30)
	left := r.reserve(tokens(100)).Reservation
	r.ledger.silent.Store(true)
	if _, err := r.Refund(t.Context(), left, used(40)); !errors.Is(err, ledger.ErrUnavailable) {
		t.Fatal(err)
	}
	want("a Refund that the ledger did not take", 0)
	r.ledger.silent.Store(false)
	r.settled()
	want("the outbox", 70)
}

// Alerts that can't be read are left out of an Overview, which is else whole.
func TestOverviewWithoutAlerts(t *testing.T) {
	r := newRig(t, alertingPolicy(1000))
	r.parts = func(p *reservation.Parts) { p.Alerts = unreadable{} }
	r.start(r.ledger)
	r.refund(r.reserve(tokens(1000)).Reservation, used(1000))
	if got := r.overview(nil)["budget"]; got.Posted != 1000 || got.Alerts != nil {
		t.Errorf("%+v", got)
	}
}

type unreadable struct{}

func (unreadable) Raised(context.Context, []ledger.UsageKey) ([][]quota.Alert, error) {
	return nil, alerts.ErrUnavailable
}

// observed keeps the newest use of the quota that it heard of.
type observed struct {
	mu   sync.Mutex
	used quota.Amount
}

func (o *observed) Observed(usage []ledger.Usage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, row := range usage {
		if row.Limit != "" {
			o.used = max(o.used, row.Used)
		}
	}
}

func (o *observed) take() quota.Amount {
	o.mu.Lock()
	defer o.mu.Unlock()
	used := o.used
	o.used = 0
	return used
}

// openAlerts returns a store of alerts and a watcher on it that looks at the
// rig's policy.
func openAlerts(t *testing.T, r *rig) (*alerts.Store, *alerts.Watcher) {
	t.Helper()
	db, err := sqliteledger.OpenFile(filepath.Join(t.TempDir(), "alerts.db"), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	migrate(t, db)
	store := alerts.Open(db, alerts.Config{})
	return store, alerts.NewWatcher(alerts.WatcherConfig{Policies: r.policy, Store: store, Clock: r.clock.Now, Log: testLog(t)})
}
