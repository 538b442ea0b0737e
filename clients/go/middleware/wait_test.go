package middleware_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/middleware"
)

// A call that may wait reaches its handler at its start, and not at all when its
// client hangs up before.
func TestCallsWaitForTheirStart(t *testing.T) {
	client, _ := newClient(t)
	var handled atomic.Int32
	server := serve(t, client, map[string]http.HandlerFunc{"GET /paced": func(http.ResponseWriter, *http.Request) { handled.Add(1) }},
		middleware.WithRequest(func(*http.Request) budget.Request { return budget.Request{MaxWait: time.Minute} }))
	began := time.Now()
	for range 2 {
		if a := get(t, http.DefaultClient, server.URL+"/paced"); a.status != http.StatusOK {
			t.Fatal(a)
		}
	}
	if waited := time.Since(began); waited < 900*time.Millisecond {
		t.Errorf("two calls at one a second took %v", waited)
	}
	ctx, hangUp := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer hangUp()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/paced", nil)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := http.DefaultClient.Do(request); err == nil {
		answer.Body.Close()
		t.Errorf("a client that hung up got %s", answer.Status)
	}
	if a := get(t, http.DefaultClient, server.URL+"/paced"); a.status != http.StatusOK || handled.Load() != 3 {
		t.Errorf("%d, with %d calls handled; want 3", a.status, handled.Load())
	}
}
