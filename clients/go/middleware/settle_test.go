package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/middleware"
	"github.com/budgetd/budgetd/test/broker"
)

// A broker that is silent when a call ends does not keep the answer from the
// client: the Refund comes behind it, and Close waits for it.
func TestAnswerDoesNotWaitForASilentBroker(t *testing.T) {
	b, key := broker.StartWith(t, policy, []string{"api"}, "--deadline", "2s")
	direct, err := budget.New(b.URL, key)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	var silent atomic.Pointer[chan struct{}]
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait := silent.Load(); wait != nil && strings.HasSuffix(r.URL.Path, "/Refund") {
			<-*wait
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	client, err := budget.New(front.URL, key, budget.WithRefundTimeout(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	ids := make(chan string, 1)
	server := serve(t, client, map[string]http.HandlerFunc{"GET /report": func(w http.ResponseWriter, r *http.Request) {
		ids <- middleware.Reservation(r.Context()).ID
		middleware.SetUsage(r.Context(), budget.Amounts(map[string]int64{"pages": 3}))
		fmt.Fprint(w, "done")
	}}, middleware.WithRequest(func(*http.Request) budget.Request {
		return budget.Request{Amounts: map[string]int64{"pages": 50}}
	}))
	speak := make(chan struct{})
	silent.Store(&speak)
	answered := make(chan answer, 1)
	go func() { answered <- get(t, http.DefaultClient, server.URL+"/report") }()
	select {
	case a := <-answered:
		if a.status != http.StatusOK || a.body != "done" || a.header.Get("RateLimit") != `"pages";r=50;t=4320000` {
			t.Errorf("%d %q %v", a.status, a.body, a.header)
		}
	case <-time.After(10 * time.Second):
		t.Error("the answer waits for the broker")
	}
	id := <-ids
	if story(t, direct, id).Outcome != nil {
		t.Error("the reservation has ended while the broker is silent")
	}
	closed := make(chan error, 1)
	go func() { closed <- client.Close(context.Background()) }()
	select {
	case err := <-closed:
		t.Errorf("Close did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(speak)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if outcome := story(t, direct, id).Outcome; outcome.GetCharged()["pages"] != 3 {
		t.Errorf("after Close: %v, want 3 pages", outcome)
	}
}

// Who asks again when the answer has come finds the slot free.
func TestNextCallFindsTheSlotFree(t *testing.T) {
	client, _ := newClient(t)
	server := serve(t, client, map[string]http.HandlerFunc{"GET /slow": ok}, middleware.WithSettleWait(20*time.Second))
	for i := range 5 {
		if a := get(t, http.DefaultClient, server.URL+"/slow"); a.status != http.StatusOK {
			t.Fatalf("call %d: %d, limited by %q", i+1, a.status, a.header.Get("Budget-Limited-By"))
		}
	}
}
