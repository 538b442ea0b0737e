package middleware_test

import (
	"net/http"
	"testing"

	"github.com/budgetd/budgetd/clients/go/middleware"
)

func ok(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

// empty calls until the client's bucket of 10 is empty, and returns the refusal.
func empty(t *testing.T, caller *http.Client, url string, header ...string) answer {
	t.Helper()
	for i := range 30 { // more than 10 where a slow machine lets it refill
		a := get(t, caller, url, header...)
		if a.status == http.StatusTooManyRequests && i >= 10 {
			return a
		}
		if a.status != http.StatusOK || a.header.Get("RateLimit") == "" || a.header.Get("RateLimit-Policy") != `"default";q=10;w=5` || a.header.Get("Retry-After") != "" {
			t.Fatalf("call %d: %d %v", i+1, a.status, a.header)
		}
	}
	t.Fatal("the bucket is never empty")
	return answer{}
}

func wantRefusal(t *testing.T, a answer) {
	t.Helper()
	for name, want := range map[string]string{
		"RateLimit": `"default";r=0;t=5`, "RateLimit-Policy": `"default";q=10;w=5`, "Retry-After": "1",
		"Budget-Limited-By": "default", "Cache-Control": "no-store", "Content-Type": "application/json",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if want := `{"error":"too many requests","limit":"default"}` + "\n"; a.body != want {
		t.Errorf("body %q, want %q", a.body, want)
	}
}

// Clients behind two proxies have buckets of their own, whatever they claim.
func TestClientsBehindTwoProxies(t *testing.T) {
	client, _ := newClient(t)
	inner := behind(t, serve(t, client, map[string]http.HandlerFunc{"GET /": ok}, middleware.WithTrustedProxies("127.0.0.1")))
	outer := behind(t, inner)
	first := get(t, callerAt(t, "127.0.0.2"), outer.URL)
	if got := first.header.Get("RateLimit"); first.status != http.StatusOK || got != `"default";r=9;t=1` {
		t.Errorf("the first call: %d, RateLimit %s", first.status, got)
	}
	if got := first.header.Get("Cache-Control"); got != "" {
		t.Errorf("Cache-Control of an answer that is the handler's: %s", got)
	}
	wantRefusal(t, empty(t, callerAt(t, "127.0.0.3"), outer.URL))
	if a := get(t, callerAt(t, "127.0.0.4"), outer.URL, "X-Forwarded-For", "127.0.0.3"); a.status != http.StatusOK {
		t.Errorf("another client that names an exhausted one: %d", a.status)
	}
	for _, claim := range []string{"203.0.113.9", "127.0.0.1", "10.0.0.1, 127.0.0.1"} {
		a := get(t, callerAt(t, "127.0.0.3"), outer.URL, "X-Forwarded-For", claim)
		if got := a.header.Get("RateLimit"); a.status != http.StatusTooManyRequests && got != `"default";r=0;t=5` {
			t.Errorf("claiming to be %s: %d, RateLimit %s", claim, a.status, got)
		}
	}
	// The same chain, of which the Middleware knows the inner proxy only by
	// another address: then it is the client.
	strict := behind(t, serve(t, client, map[string]http.HandlerFunc{"GET /": ok}, middleware.WithTrustedProxies("10.0.0.0/8")))
	wantRefusal(t, empty(t, callerAt(t, "127.0.0.5"), strict.URL))
	if a := get(t, callerAt(t, "127.0.0.6"), strict.URL); a.status != http.StatusTooManyRequests && a.header.Get("RateLimit") != `"default";r=0;t=5` {
		t.Errorf("a client behind a proxy that is not trusted: %d %v", a.status, a.header)
	}
}
