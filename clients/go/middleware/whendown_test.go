package middleware_test

import (
	"net/http"
	"testing"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/middleware"
)

// Without a broker each call follows its rule: a local bucket answers as a broker
// would, and what goes on has no reservation.
func TestGuardWithoutABroker(t *testing.T) {
	client, b := newClient(t)
	rules := map[string]budget.WhenDown{"/open": budget.Open(), "/closed": budget.Closed()}
	var err error
	if rules["/local"], err = budget.Local(0.01, 1); err != nil {
		t.Fatal(err)
	}
	server := serve(t, client, map[string]http.HandlerFunc{"GET /": func(_ http.ResponseWriter, r *http.Request) {
		if held := middleware.Reservation(r.Context()); held.ID != "" || !held.Degraded {
			t.Errorf("%s ran with reservation %.12s…, degraded %v", r.URL.Path, held.ID, held.Degraded)
		}
		if !middleware.SetUsage(r.Context(), budget.Unused()) {
			t.Error("SetUsage was not taken")
		}
	}}, middleware.WithRequest(func(r *http.Request) budget.Request {
		return budget.Request{WhenDown: rules[r.URL.Path]}
	}))
	b.Kill()
	for _, c := range []struct {
		path                  string
		status                int
		retryAfter, limitedBy string
	}{
		{"/open", 200, "", ""},
		{"/closed", 503, "1", ""},
		{"/local", 200, "", ""},
		{"/local", 429, "100", "local"},
	} {
		a := get(t, http.DefaultClient, server.URL+c.path)
		if a.status != c.status || a.header.Get("Retry-After") != c.retryAfter || a.header.Get("Budget-Limited-By") != c.limitedBy || a.header.Get("RateLimit") != "" {
			t.Errorf("%s: %d %v, want %+v", c.path, a.status, a.header, c)
		}
	}
}

// A usage that no broker takes is a fault of the handler: the call then counts as
// it was held, and its slot comes free.
func TestUsageThatIsRefused(t *testing.T) {
	client, _ := newClient(t)
	ids := make(chan string, 1)
	server := serve(t, client, map[string]http.HandlerFunc{"GET /": func(_ http.ResponseWriter, r *http.Request) {
		ids <- middleware.Reservation(r.Context()).ID
		middleware.SetUsage(r.Context(), budget.Amounts(map[string]int64{"pages": -1}))
	}}, middleware.WithRequest(func(*http.Request) budget.Request {
		return budget.Request{Amounts: map[string]int64{"pages": 50}}
	}))
	get(t, http.DefaultClient, server.URL)
	id := <-ids
	waitFor(t, "the refund", func() bool { return story(t, client, id).Outcome != nil })
	if charged := story(t, client, id).Outcome.Charged["pages"]; charged != 50 {
		t.Errorf("%d pages charged, want the 50 that were held", charged)
	}
}
