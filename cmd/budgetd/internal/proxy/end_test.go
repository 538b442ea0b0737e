package proxy

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// At the end calls under way finish, no other is taken, and the proxy is not
// ready.
func TestCloseLetsStreamsEnd(t *testing.T) {
	r := start(t, func(r *rig) { r.config.ShutdownGrace, r.config.OpsListen = 20*time.Second, "127.0.0.1:0" })
	a, reader := r.beginStream(t.Context(), "last")
	closed := make(chan error)
	go func() { closed <- r.server.Close() }()
	await(t, "the proxy to take no connection", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.server.URL(), "http://"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	if status := r.status(r.server.OpsURL() + "/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz while it drains: %d", status)
	}
	if status := r.status(r.server.OpsURL() + "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz while it drains: %d", status)
	}
	r.finishStream(a, reader, "last")
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if used := r.used(); used != 12 {
		t.Errorf("%d tokens are charged, want 12", used)
	}
}

// What does not finish in time is cut off, and charged for what was seen, before
// the proxy has ended.
func TestCloseCutsStreams(t *testing.T) {
	for _, speak := range []func(*rig){func(*rig) {}, (*rig).speakHTTP2} {
		r := start(t, func(r *rig) { r.config.ShutdownGrace = 10 * time.Millisecond })
		speak(r)
		a, reader := r.beginStream(t.Context(), "cut")
		if err := r.server.Close(); err != nil {
			t.Error(err)
		}
		if _, err := reader.ReadString(0); err == nil {
			t.Error("the stream was not cut")
		}
		a.Body.Close()
		if used := r.used(); used != 9 {
			t.Errorf("%d tokens are charged, want 9", used)
		}
		if !strings.Contains(r.log.String(), "under_way=1") {
			t.Error("the log does not say how many calls were cut off")
		}
	}
}

// awayAfterReserve makes a call whose Refund the broker does not take.
func (r *rig) awayAfterReserve() {
	r.t.Helper()
	a, reader := r.beginStream(r.t.Context(), "kept")
	r.gate.closed.Store(true)
	for range words[1:] {
		r.provider.Step("kept")
	}
	for err := error(nil); err == nil; {
		_, err = reader.ReadByte()
	}
	a.Body.Close()
	await(r.t, "the Refund to be kept", func() bool { return r.metric("budgetd_proxy_refunds_kept_total") == 1 })
}

// Refunds that wait for the broker when the proxy ends are delivered before it
// has ended. They were no loss.
func TestCloseDeliversKeptRefunds(t *testing.T) {
	r := start(t)
	r.awayAfterReserve()
	r.gate.closed.Store(false)
	if err := r.server.Close(); err != nil {
		t.Error(err)
	}
	if used := r.used(); used != 12 {
		t.Errorf("%d tokens are charged, want 12", used)
	}
	if lost := r.metric("budgetd_proxy_refunds_lost_total"); lost != 0 {
		t.Errorf("%v Refunds count as lost", lost)
	}
}

// Those that can't be are counted, and told.
func TestCloseTellsLostRefunds(t *testing.T) {
	r := start(t, func(r *rig) { r.proxy.bounds.refunds = 50 * time.Millisecond })
	r.awayAfterReserve()
	if lost := r.metric("budgetd_proxy_refunds_lost_total"); lost != 0 {
		t.Errorf("%v Refunds count as lost while they are kept", lost)
	}
	if err := r.server.Close(); err == nil || !strings.Contains(err.Error(), "refunds that are lost: 1") {
		t.Errorf("the end says %v", err)
	}
	if lost := r.metric("budgetd_proxy_refunds_lost_total"); lost != 1 || !strings.Contains(r.log.String(), "refunds_lost=1") {
		t.Errorf("%v Refunds count as lost", lost)
	}
	r.gate.closed.Store(false)
}

// A key that is not remembered any more takes nothing with it.
func TestForgottenKeyDeliversKeptRefunds(t *testing.T) {
	r := start(t)
	r.awayAfterReserve()
	c := r.proxy.clients
	c.mu.Lock()
	c.forget(c.leaver())
	left := len(c.byKey) + len(c.payers)
	c.mu.Unlock()
	if left != 0 {
		t.Fatalf("%d are remembered", left)
	}
	r.gate.closed.Store(false)
	if err := r.server.Close(); err != nil {
		t.Error(err)
	}
	if used := r.used(); used != 12 {
		t.Errorf("%d tokens are charged, want 12", used)
	}
}

func (r *rig) status(url string) int {
	r.t.Helper()
	a, err := r.http.Get(url)
	if err != nil {
		r.t.Fatal(err)
	}
	read(r.t, a)
	return a.StatusCode
}

// Keys that the broker does not know go first.
func TestLeaver(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	c := &clients{broker: "http://127.0.0.1:1", deadline: time.Second, now: func() time.Time { now = now.Add(time.Second); return now }}
	c.open()
	payers := map[string]*payer{}
	for _, key := range []string{"a", "b", "c", "a"} {
		p := payers[key]
		if p == nil {
			var err error
			if p, err = c.newPayer(key); err != nil {
				t.Fatal(err)
			}
			p.hash[0] = key[0]
			payers[key] = p
			c.remember(p)
			c.learn(p.strict, key != "b")
		}
		p.last = c.now()
	}
	if p := c.leaver(); p.known {
		t.Error("a known key goes before an unknown one")
	} else {
		c.forget(p)
	}
	if p := c.leaver(); p != payers["c"] {
		t.Error("who called last goes first")
	}
	c.endWait()
	c.gone.Wait()
}
