package retry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// stalling is a request to a server that answers 503 with headers and the beginning of
// a body that does not end, and the second call with 200; cancel ends the request's
// context. gone is told of each stalled call that has ended.
func stalling(t *testing.T) (request *http.Request, cancel context.CancelFunc, calls *atomic.Int32, gone chan struct{}) {
	t.Helper()
	calls, gone = &atomic.Int32{}, make(chan struct{}, 16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) > 1 {
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "{")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel) // before the server waits for its calls
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return request, cancel, calls, gone
}

// soon fails the test when what should end does not.
func soon(t *testing.T, what string, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s did not end", what)
	}
}

func TestABodyThatDoesNotEnd(t *testing.T) {
	request, _, calls, gone := stalling(t)
	const wait = 400 * time.Millisecond
	var slept time.Duration
	policy := Policy{
		First: wait, MaxWait: wait, Random: func() float64 { return 0.5 },
		Sleep: func(ctx context.Context, d time.Duration) error { slept = d; return ctx.Err() },
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		response, err := (&Transport{Policy: policy}).RoundTrip(request)
		if err != nil {
			t.Error(err)
			return
		}
		if response.Body.Close(); response.StatusCode != http.StatusOK {
			t.Errorf("answered %d", response.StatusCode)
		}
	}()
	soon(t, "the call", done)
	soon(t, "the connection of the answer that stalled", gone)
	if calls.Load() != 2 || slept > wait-maxDraining {
		t.Errorf("%d calls, slept %v; want 2, and at most %v: draining is a part of the wait", calls.Load(), slept, wait-maxDraining)
	}
}

func TestTheContextEndsDraining(t *testing.T) {
	request, cancel, calls, gone := stalling(t)
	slept := false
	policy := Policy{Sleep: func(context.Context, time.Duration) error { slept = true; return nil }}
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			cancel() // as soon as the headers are there
		}
		return response, err
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := (&Transport{Base: base, Policy: policy}).RoundTrip(request); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the context's error", err)
		}
	}()
	soon(t, "the call", done)
	soon(t, "the connection of the answer that stalled", gone)
	if calls.Load() != 1 || slept {
		t.Errorf("%d calls, slept %v after the context's end", calls.Load(), slept)
	}
}

// An answer that ends leaves its connection to the next try.
func TestADrainedConnectionIsUsedAgain(t *testing.T) {
	from := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from[r.RemoteAddr]++; from[r.RemoteAddr] < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "busy")
		}
	}))
	defer server.Close()
	policy := Policy{Tries: 3, Sleep: func(context.Context, time.Duration) error { return nil }}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&Transport{Base: server.Client().Transport, Policy: policy}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || len(from) != 1 {
		t.Errorf("answered %d after calls from %v, want one connection", response.StatusCode, from)
	}
}
