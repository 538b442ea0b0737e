package alerts

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var testSecret = []byte("0123456789abcdef0123456789abcdef")

// receiver is a webhook that keeps what it got, and answers as it is told.
type receiver struct {
	*httptest.Server
	t      *testing.T
	clock  *clock
	mu     sync.Mutex
	got    []delivery
	answer func(attempt int, w http.ResponseWriter) // attempt is from 1; nil: 204
}

type delivery struct {
	id        string
	body      string
	signature string
}

func newReceiver(t *testing.T, now *clock, answer func(attempt int, w http.ResponseWriter)) *receiver {
	r := &receiver{t: t, clock: now, answer: answer}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP checks the signature by the text of the convention and not with the
// library that made it.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		r.t.Error(err)
	}
	id, at := request.Header.Get("webhook-id"), request.Header.Get("webhook-timestamp")
	signed := signature(testSecret, id, at, string(body))
	if !strings.Contains(" "+request.Header.Get("webhook-signature")+" ", " "+signed+" ") {
		r.t.Errorf("signature %q, want %s", request.Header.Get("webhook-signature"), signed)
	}
	if at != fmt.Sprint(r.clock.Now().Unix()) || request.Method != http.MethodPost || request.Header.Get("Content-Type") != "application/json" {
		r.t.Errorf("%s at %s: %v", request.Method, at, request.Header)
	}
	r.mu.Lock()
	r.got = append(r.got, delivery{id, string(body), request.Header.Get("webhook-signature")})
	attempt := len(r.got)
	r.mu.Unlock()
	if r.answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	r.answer(attempt, w)
}

func (r *receiver) deliveries() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]delivery(nil), r.got...)
}

func signature(secret []byte, id, at, body string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + at + "." + body))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func newTestDeliverer(t *testing.T, store *Store, url string, now *clock, log io.Writer) (*Deliverer, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	d, err := NewDeliverer(DelivererConfig{
		Store: store, URL: url, Secrets: [][]byte{testSecret}, Clock: now.Now, Registerer: registry,
		Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.webhook.client.CloseIdleConnections)
	return d, registry
}

func deliver(t *testing.T, d *Deliverer) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = d.Deliver(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func outcomes(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, f := range families {
		if f.GetName() == "budgetd_alerts_deliveries_total" {
			for _, m := range f.GetMetric() {
				text = append(text, fmt.Sprintf("%s %v", m.GetLabel()[0].GetValue(), m.GetCounter().GetValue()))
			}
		}
	}
	return strings.Join(text, ", ")
}

// A receiver that fails in each way that can pass by itself gets the alert
// again, the same bytes under the same id, no earlier than it asked, until it
// takes it.
func TestRetries(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		store, now := open(), newClock()
		r := newReceiver(t, now, func(attempt int, w http.ResponseWriter) {
			switch attempt {
			case 1:
				w.WriteHeader(http.StatusInternalServerError)
				fmt.Fprint(w, "a very private answer", strings.Repeat("x", 1<<20))
			case 2:
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusTooManyRequests)
			case 3:
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(http.StatusFound)
			}
		})
		var log lockedText
		d, registry := newTestDeliverer(t, store, r.URL+"/hook/s3cret-path", now, &log)
		raise(t, store, true, event("acme", 80, now.Now()))
		steps := []struct {
			wait    time.Duration // before which nothing may be sent
			then    time.Duration
			lastErr string
		}{
			{0, 0, "status 500"},
			{4 * time.Second, 2 * time.Second, "status 429"},
			{time.Hour - time.Second, time.Second, "status 302: redirects are not followed; configure the address that they lead to"},
			{16 * time.Second, 8 * time.Second, "status 302: redirects are not followed; configure the address that they lead to"},
		}
		for i, step := range steps {
			if step.wait > 0 {
				now.Add(step.wait - time.Millisecond)
				deliver(t, d)
				if n := len(r.deliveries()); n != i {
					t.Fatalf("attempt %d after %v, %d are due", n, step.wait, i)
				}
				now.Add(step.then + time.Millisecond)
			}
			deliver(t, d)
			if n := len(r.deliveries()); n != i+1 {
				t.Fatalf("%d attempts, want %d", n, i+1)
			}
			if a := list(t, store, "")[0]; a.LastError != step.lastErr || a.Attempts != i+1 || (a.State == StateDelivered) != (i == 3) {
				t.Fatalf("after attempt %d: %+v", i+1, a)
			}
		}
		first := r.deliveries()[0]
		e := event("acme", 80, newClock().Now())
		if first.id != e.ID() {
			t.Errorf("id %s, want %s", first.id, e.ID())
		}
		for _, again := range r.deliveries() {
			if again.id != first.id || again.body != first.body {
				t.Errorf("another message: %+v, first %+v", again, first)
			}
		}
		now.Add(100 * 24 * time.Hour)
		deliver(t, d)
		if n := len(r.deliveries()); n != 4 {
			t.Errorf("%d attempts after it was delivered", n)
		}
		if got := outcomes(t, registry); got != "delivered 1, failed 0, retried 3" {
			t.Error(got)
		}
		if strings.Count(log.String(), "does not take alerts") != 1 || strings.Count(log.String(), "takes alerts again") != 1 {
			t.Errorf("the log: %s", &log)
		}
		for _, private := range []string{"private answer", "s3cret-path", string(testSecret)} {
			if strings.Contains(log.String(), private) {
				t.Errorf("the log tells %q: %s", private, &log)
			}
		}
	})
}

// What is posted is what the documentation shows; figures of 64 bits too are
// exact.
func TestMessage(t *testing.T) {
	e := event("acme", 80, newClock().Now())
	body, err := e.message()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown bytes.Buffer
	if err := json.Indent(&shown, body, "", "  "); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```json\n"+shown.String()+"\n```") {
		t.Errorf("docs/alerts.md does not show\n%s", &shown)
	}
	e.Used = math.MaxInt64
	if body, err = e.message(); err != nil || !strings.Contains(string(body), `"used":"9223372036854775807"`) {
		t.Errorf("%s, %v", body, err)
	}
}

// With two secrets each signs, so that receivers can go over one by one.
func TestTwoSecrets(t *testing.T) {
	now := newClock()
	r := newReceiver(t, now, nil)
	store := sqliteStores(t, 10*time.Second)()
	newer := bytes.Repeat([]byte{7}, 32)
	d, err := NewDeliverer(DelivererConfig{Store: store, URL: r.URL, Secrets: [][]byte{newer, testSecret}, Clock: now.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.webhook.client.CloseIdleConnections)
	raise(t, store, true, event("acme", 80, now.Now()))
	deliver(t, d)
	got := r.deliveries()[0]
	if want := signature(newer, got.id, fmt.Sprint(now.Now().Unix()), got.body) + " " + signature(testSecret, got.id, fmt.Sprint(now.Now().Unix()), got.body); got.signature != want {
		t.Errorf("%s, want %s", got.signature, want)
	}
}

// A receiver that wants no more of it is left alone; one that never answers is
// given up after about three days. An address that nobody listens at is neither
// logged nor kept.
func TestGivenUp(t *testing.T) {
	store, now := sqliteStores(t, 10*time.Second)(), newClock()
	gone := newReceiver(t, now, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusGone) })
	var log lockedText
	d, registry := newTestDeliverer(t, store, gone.URL, now, &log)
	raise(t, store, true, event("acme", 80, now.Now()))
	deliver(t, d)
	if a := list(t, store, "")[0]; a.State != StateFailed || a.Attempts != 1 || !strings.HasPrefix(a.LastError, "status 410") {
		t.Errorf("%+v", a)
	}
	if got := outcomes(t, registry); got != "delivered 0, failed 1, retried 0" {
		t.Error(got)
	}

	nobody := httptest.NewServer(http.NotFoundHandler())
	nobody.Close()
	d, registry = newTestDeliverer(t, store, nobody.URL+"/s3cret-path", now, &log)
	start := now.Now()
	raise(t, store, true, event("beta", 80, start))
	for range MaxAttempts {
		deliver(t, d)
		if a := list(t, store, "beta")[0]; a.State == StatePending {
			now.Add(a.NextAttempt.Sub(now.Now()))
		}
	}
	a := list(t, store, "beta")[0]
	if a.State != StateFailed || a.Attempts != MaxAttempts || !strings.Contains(a.LastError, "connection refused") {
		t.Errorf("%+v", a)
	}
	if took := a.FailedAt.Sub(start); took < 60*time.Hour || took > 84*time.Hour {
		t.Errorf("given up after %v, want about three days", took)
	}
	if got := outcomes(t, registry); got != fmt.Sprintf("delivered 0, failed 1, retried %d", MaxAttempts-1) {
		t.Error(got)
	}
	if strings.Contains(log.String()+a.LastError, "s3cret-path") {
		t.Errorf("the address is told: %s %s", &log, a.LastError)
	}
	if strings.Count(log.String(), "an alert is given up") != 2 {
		t.Errorf("the log: %s", &log)
	}
}

// A node that dies with what it has claimed: another sends it, when the claim
// has ended and not before.
func TestNodeDiesAfterClaiming(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		now := newClock()
		r := newReceiver(t, now, nil)
		raise(t, open(), true, event("acme", 80, now.Now()), event("acme", 100, now.Now()))
		if claimed, err := open().Claim(t.Context(), now.Now(), claimFor, 1); err != nil || len(claimed) != 1 {
			t.Fatalf("%+v, %v", claimed, err)
		}
		other, _ := newTestDeliverer(t, open(), r.URL, now, io.Discard)
		deliver(t, other)
		now.Add(claimFor - time.Microsecond)
		deliver(t, other)
		if n := len(r.deliveries()); n != 1 {
			t.Errorf("%d deliveries while the claim stands, want that of the other alert", n)
		}
		now.Add(time.Microsecond)
		deliver(t, other)
		if n := len(r.deliveries()); n != 2 {
			t.Errorf("%d deliveries after the claim's end, want 2", n)
		}
	})
}

// Several nodes on one outbox: each alert is sent once, and a node that is
// stopped in mid-attempt leaves it to the others at once.
func TestNodesShareTheOutbox(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		now := newClock()
		inside, release := make(chan struct{}, 1), make(chan struct{})
		slow := newReceiver(t, now, func(int, http.ResponseWriter) { inside <- struct{}{}; <-release })
		stopped, _ := newTestDeliverer(t, open(), slow.URL, now, io.Discard)
		raise(t, open(), true, event("first", 80, now.Now()))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); stopped.Run(ctx) }()
		<-inside
		cancel()
		<-ended
		close(release)
		if a := list(t, open(), "first")[0]; a.State != StatePending || a.NextAttempt.After(now.Now()) {
			t.Fatalf("after the stop: %+v", a)
		}

		r := newReceiver(t, now, nil)
		var nodes []*Deliverer
		for range 3 {
			d, _ := newTestDeliverer(t, open(), r.URL, now, io.Discard)
			nodes = append(nodes, d)
		}
		store := open()
		var events []Event
		for i := range 2 * claimAtOnce {
			events = append(events, event(fmt.Sprint("a", i), 80, now.Now()))
		}
		raise(t, store, true, events...)
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		var running sync.WaitGroup
		for _, d := range nodes {
			running.Go(func() { d.Run(ctx) })
			d.Wake()
		}
		await(t, func() bool { n, err := store.Pending(t.Context()); return err == nil && n == 0 })
		cancel()
		running.Wait()
		seen := map[string]bool{}
		for _, got := range r.deliveries() {
			if seen[got.id] {
				t.Errorf("%s was sent twice", got.id)
			}
			seen[got.id] = true
		}
		if len(seen) != 2*claimAtOnce+1 {
			t.Errorf("%d alerts were sent, want %d", len(seen), 2*claimAtOnce+1)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := newClock().Now()
	for header, want := range map[string]time.Duration{
		"": 0, "0": 0, "120": 2 * time.Minute, "-1": 0, "1.5": 0, "soon": 0, "99999999999999": 0, "4294967295": maxRetryAfter,
		now.Add(time.Hour).Truncate(time.Second).Format(http.TimeFormat): time.Hour - 123456*time.Microsecond,
		now.Add(-time.Hour).Format(http.TimeFormat):                      0,
		now.Add(1000 * time.Hour).Format(http.TimeFormat):                maxRetryAfter,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}
