package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/provider"
)

// While no broker answers calls are refused. The log has one line when it goes
// away and one when it is back, whatever the number of calls.
func TestBrokerAway(t *testing.T) {
	r := start(t)
	plain := provider.Script{Tokens: provider.Tokens{Input: 8}}
	if a, text := r.call(chatPath, chat, plain); a.StatusCode != http.StatusOK {
		t.Fatal(a.StatusCode, text)
	}
	r.gate.closed.Store(true)
	for range 2 * awayAfter {
		if a, text := r.call(chatPath, chat, plain); a.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "budget_unavailable") {
			t.Errorf("%d %s", a.StatusCode, text)
		}
	}
	if up := r.metric("budgetd_proxy_broker_up"); up != 0 {
		t.Errorf("budgetd_proxy_broker_up is %v while it is away", up)
	}
	if status := r.status(r.server.URL() + "/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz while the broker is away: %d", status)
	}
	r.gate.closed.Store(false)
	await(t, "calls to be answered", func() bool {
		a, _ := r.call(chatPath, chat, plain)
		return a.StatusCode == http.StatusOK
	})
	if up := r.metric("budgetd_proxy_broker_up"); up != 1 {
		t.Errorf("budgetd_proxy_broker_up is %v when it is back", up)
	}
	await(t, "the proxy to be ready", func() bool { return r.status(r.server.URL()+"/readyz") == http.StatusOK })
	log := r.log.String()
	if strings.Count(log, "the broker does not answer") != 1 || strings.Count(log, "the broker answers again") != 1 {
		t.Errorf("the log is\n%s", log)
	}
	if strings.Count(log, "level=WARN") != 1 {
		t.Errorf("there are other warnings:\n%s", log)
	}
}

// A broker that comes and goes does not fill the log.
func TestBrokerComesAndGoes(t *testing.T) {
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	now, log := time.Unix(1_800_000_000, 0), &broker.Output{}
	w := &brokerWatch{metrics: m, log: slog.New(slog.NewTextHandler(log, nil)), now: func() time.Time { return now }}
	for range 10 {
		for range awayAfter + 2 {
			w.silent(errors.New("refused"))
		}
		now = now.Add(awayAgain / 4)
		w.answered()
	}
	// Told at 0, 4, 8 of the ten.
	if text := log.String(); strings.Count(text, "does not answer") != 3 || strings.Count(text, "answers again") != 3 || !strings.Contains(text, "absences_not_told=3") {
		t.Errorf("the log is\n%s", text)
	}
}

// What becomes of calls while no broker answers is the operator's choice, for keys
// that the broker has known before: else any word would open the proxy.
func TestWhenDown(t *testing.T) {
	for _, rule := range []struct {
		name   string
		passed int // of three calls
		after  int // status of the others
		ready  int
	}{
		{"closed", 0, http.StatusServiceUnavailable, http.StatusServiceUnavailable},
		{"open", 3, 0, http.StatusOK},
		{"local", 2, http.StatusTooManyRequests, http.StatusOK},
	} {
		t.Run(rule.name, func(t *testing.T) {
			r := newRig(t)
			r.config.WhenDown, r.config.LocalRate, r.config.LocalBurst = rule.name, 1, 2
			r.begin()
			script := provider.Script{Tokens: provider.Tokens{Input: 8}}
			r.gate.closed.Store(true)
			if a, text := r.call(chatPath, chat, script); a.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("a key that was never known: %d %s", a.StatusCode, text)
			}
			if status := r.status(r.server.URL() + "/readyz"); status != http.StatusServiceUnavailable {
				t.Errorf("/readyz before the broker ever answered: %d", status)
			}
			r.gate.closed.Store(false)
			if a, text := r.call(chatPath, chat, script); a.StatusCode != http.StatusOK {
				t.Fatal(a.StatusCode, text)
			}
			used := r.used()
			r.gate.closed.Store(true)
			passed := 0
			for range 3 {
				switch a, text := r.call(chatPath, chat, script); {
				case a.StatusCode == http.StatusOK:
					passed++
				case a.StatusCode != rule.after || a.StatusCode == http.StatusTooManyRequests && a.Header.Get("Retry-After") != "1":
					t.Errorf("%d %v %s", a.StatusCode, a.Header, text)
				}
			}
			if passed != rule.passed || r.metric("budgetd_proxy_calls_unbudgeted_total") != float64(passed) {
				t.Errorf("%d calls went on, %v were counted, want %d", passed, r.metric("budgetd_proxy_calls_unbudgeted_total"), rule.passed)
			}
			models, err := http.NewRequest(http.MethodGet, r.server.URL()+"/openai/v1/models", nil)
			if err != nil {
				t.Fatal(err)
			}
			models.Header.Set("Authorization", "Bearer "+budgetKey)
			free, err := r.http.Do(models)
			if err != nil {
				t.Fatal(err)
			}
			read(t, free)
			if free.StatusCode != rule.ready {
				t.Errorf("a list of models: %d", free.StatusCode)
			}
			await(t, "the readiness to be looked at again", func() bool { return r.status(r.server.URL()+"/readyz") == rule.ready })
			r.gate.closed.Store(false)
			if now := r.used(); now != used {
				t.Errorf("%d tokens are charged, want %d: calls without a broker are in no ledger", now, used)
			}
		})
	}
}

// broker_deadline is the deadline of every question, also above the client's own two
// seconds.
func TestBrokerDeadline(t *testing.T) {
	const deadline = 20 * time.Second
	r := newRig(t)
	r.config.BrokerDeadline = deadline
	left := make(chan time.Duration, 10)
	r.begin(func(r *rig) {
		r.proxy.clients.http.Transport = seeing{r.proxy.watch, func(request *http.Request) {
			if until, bounded := request.Context().Deadline(); bounded && strings.HasSuffix(request.URL.Path, "/Reserve") {
				left <- time.Until(until)
			}
		}}
	})
	if a, text := r.call(chatPath, chat, provider.Script{}); a.StatusCode != http.StatusOK {
		t.Errorf("%d %s", a.StatusCode, text)
	}
	if got := <-left; got > deadline || got < deadline/2 {
		t.Errorf("a Reserve has %v, want %v less what has passed", got, deadline)
	}
}

// seeing is told of each question to the broker.
type seeing struct {
	*brokerWatch
	see func(*http.Request)
}

// RoundTrip asks.
func (s seeing) RoundTrip(r *http.Request) (*http.Response, error) {
	s.see(r)
	return s.brokerWatch.RoundTrip(r)
}

// Of a proxy that nobody calls the gauge is up to date too.
func TestBrokerAwayFromIdleProxy(t *testing.T) {
	r := start(t, func(r *rig) { r.proxy.bounds.probe = time.Millisecond })
	r.gate.closed.Store(true)
	await(t, "the broker to be away", func() bool { return r.metric("budgetd_proxy_broker_up") == 0 })
	r.gate.closed.Store(false)
	await(t, "the broker to be back", func() bool { return r.metric("budgetd_proxy_broker_up") == 1 })
}

// A provider that takes no connection is 502; one to which none can be made in time
// too; one that begins too late is 504, and charged what was held, since it has the
// call. All in its own shape.
func TestUpstreamAway(t *testing.T) {
	r := newRig(t)
	r.config.FirstByteTimeout = 20 * time.Millisecond
	r.begin()
	r.serveAs(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body)
		<-request.Context().Done()
	}))
	if a, text := r.call(chatPath, chat, provider.Script{}); a.StatusCode != http.StatusGatewayTimeout || !strings.Contains(text, `"type":"server_error"`) {
		t.Errorf("one that begins too late: %d %s", a.StatusCode, text)
	}
	used := r.used()
	if used != 58 { // 8 of input, 50 of output
		t.Errorf("%d tokens are charged for a call that was sent, want the 58 that were held", used)
	}
	r.upstream.Close()
	if a, text := r.call("/anthropic/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":5,"messages":[{"role":"user","content":"Hello"}]}`, provider.Script{}); a.StatusCode != http.StatusBadGateway || !strings.Contains(text, `"type":"api_error"`) {
		t.Errorf("one that takes no connection: %d %s", a.StatusCode, text)
	}
	if now := r.used(); now != used {
		t.Errorf("%d tokens are charged for a call that was not sent", now-used)
	}
	r.proxy.base.DialContext = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	}
	if a, text := r.call(chatPath, chat, provider.Script{}); a.StatusCode != http.StatusBadGateway {
		t.Errorf("one to which no connection can be made in time: %d %s", a.StatusCode, text)
	}
	if now := r.used(); now != used {
		t.Errorf("%d tokens are charged for a call that was not sent", now-used)
	}
}
