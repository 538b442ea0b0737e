package proxy

import (
	"crypto/sha256"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/budgetd/budgetd/test/provider"
)

// questions counts what the broker is asked, by method.
type questions struct {
	mu sync.Mutex
	of map[string]int
}

// watchQuestions counts from now on.
func (r *rig) watchQuestions() *questions {
	q := &questions{of: map[string]int{}}
	count := func(path string) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.of[path[strings.LastIndex(path, "/")+1:]]++
	}
	r.gate.before.Store(&count)
	return q
}

// are fails the test unless so many were asked about keys and so many Reserves.
func (q *questions) are(t *testing.T, when string, keys, reserves int) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of["GetReservation"] != keys || q.of["Reserve"] != reserves {
		t.Errorf("%s: asked %v, want %d about the key and %d Reserves", when, maps.Clone(q.of), keys, reserves)
	}
}

// stopClock has the clients' clock stand still, and returns what sets it forward.
func (r *rig) stopClock() (forward func(time.Duration)) {
	c := r.proxy.clients
	now := time.Unix(1_800_000_000, 0)
	c.now = func() time.Time { return now }
	return func(by time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		now = now.Add(by)
	}
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func (unread) Close() error { return nil }

// A key that the broker does not know is refused in the provider's shape, and nothing
// of the call's body is read. The broker is not asked for it again at once.
func TestUnknownKeyIsRefusedBeforeTheBody(t *testing.T) {
	var forward func(time.Duration)
	r := start(t, func(r *rig) { forward = r.stopClock() })
	q := r.watchQuestions()
	try := func(path, shape string) {
		t.Helper()
		request := httptest.NewRequest(http.MethodPost, path, unread{t})
		request.Header.Set("Authorization", "Bearer "+budgetKeyA)
		w := httptest.NewRecorder()
		r.proxy.ServeHTTP(w, request)
		if text := w.Body.String(); w.Code != http.StatusUnauthorized || !strings.Contains(text, shape) || !strings.Contains(text, "the broker knows none like it") {
			t.Errorf("%s: %d %s", path, w.Code, text)
		}
	}
	try(chatPath, `"code":"invalid_api_key"`)
	try("/anthropic/v1/messages", `"type":"authentication_error"`)
	q.are(t, "two calls", 1, 0)
	forward(strangerFor)
	try(chatPath, `"code":"invalid_api_key"`)
	q.are(t, "a call later", 2, 0)
	if len(r.proxy.clients.byKey) != 0 {
		t.Error("a stranger takes a payer's place")
	}
}

// A key that the broker knows is asked about once, and again after a while without
// calls. One that a Reserve refuses is known no more.
func TestKnownKeyIsAskedAboutOnce(t *testing.T) {
	var forward func(time.Duration)
	r := start(t, func(r *rig) { forward = r.stopClock() })
	q := r.watchQuestions()
	plain := provider.Script{Tokens: provider.Tokens{Input: 8}}
	call := func(want int) {
		t.Helper()
		if a, text := r.call(chatPath, chat, plain); a.StatusCode != want {
			t.Fatalf("%d %s", a.StatusCode, text)
		}
	}
	for range 3 {
		call(http.StatusOK)
		forward(vouchedFor - time.Second) // each Reserve says it again
	}
	q.are(t, "three calls", 1, 3)
	forward(time.Second)
	call(http.StatusOK)
	q.are(t, "a call after a pause", 2, 4)

	r.gate.knows.Store(false)
	call(http.StatusUnauthorized)
	q.are(t, "the call that tells", 2, 5)
	call(http.StatusUnauthorized)
	q.are(t, "the next", 2, 5)
	r.gate.knows.Store(true)
	forward(strangerFor)
	call(http.StatusOK)
	q.are(t, "when it is known again", 3, 6)
}

// What is remembered of keys that are none is bounded.
func TestStrangersAreBounded(t *testing.T) {
	c := &clients{}
	c.open()
	defer c.endWait()
	now := time.Unix(1_800_000_000, 0)
	for i := range 2 * maxStrangers {
		c.estrange(sha256.Sum256([]byte{byte(i), byte(i >> 8)}), now)
	}
	if n := len(c.strangers); n > maxStrangers {
		t.Errorf("%d are remembered", n)
	}
}
