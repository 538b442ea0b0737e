package budget_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
)

// What a gate does with calls.
const (
	passes    int32 = iota
	turnsAway       // answers 503, as an overloaded broker does, and asks nobody
	loses           // executes calls and loses their answers
	hangs           // says nothing until the caller goes
	stalls          // executes calls and keeps their answers until it does something else
)

// gate stands between a client and a broker.
type gate struct {
	*httptest.Server
	does   atomic.Int32
	seen   atomic.Int32 // calls that came
	target atomic.Pointer[url.URL]
}

func newGate(t *testing.T, broker string) *gate {
	t.Helper()
	g := &gate{}
	g.leadTo(t, broker)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(g.target.Load()) },
		ModifyResponse: func(answer *http.Response) error {
			for g.does.Load() == stalls {
				select {
				case <-time.After(time.Millisecond):
				case <-answer.Request.Context().Done():
					return answer.Request.Context().Err()
				}
			}
			if g.does.Load() != loses {
				return nil
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			return errors.New("lost")
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusServiceUnavailable)
		},
	}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.seen.Add(1)
		switch g.does.Load() {
		case turnsAway:
			w.WriteHeader(http.StatusServiceUnavailable)
		case hangs:
			_, _ = io.Copy(io.Discard, r.Body) // net/http sees the caller go after that
			<-r.Context().Done()
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *gate) leadTo(t *testing.T, broker string) {
	t.Helper()
	target, err := url.Parse(broker)
	if err != nil {
		t.Fatal(err)
	}
	g.target.Store(target)
}

// waitFor waits for what happens in the background.
func waitFor(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}
