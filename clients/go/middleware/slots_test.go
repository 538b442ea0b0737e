package middleware_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/middleware"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// story is what the broker has of a reservation.
func story(t *testing.T, client *budget.Client, id string) *budgetv1.GetReservationResponse {
	t.Helper()
	answer, err := client.Service().GetReservation(context.Background(), connect.NewRequest(&budgetv1.GetReservationRequest{ReservationId: id}))
	if err != nil {
		t.Fatal(err)
	}
	return answer.Msg
}

// The slot is taken while the handler runs and free when it has ended, on every
// way out of it, and what was held is charged.
func TestSlots(t *testing.T) {
	client, _ := newClient(t)
	begun, ids := make(chan struct{}), make(chan string, 1)
	var way func(http.ResponseWriter, *http.Request)
	server := serve(t, client, map[string]http.HandlerFunc{"GET /slow": func(w http.ResponseWriter, r *http.Request) {
		ids <- middleware.Reservation(r.Context()).ID
		<-begun
		way(w, r)
	}})
	// On a connection that was used before, net/http would repeat a call that got
	// no answer.
	caller := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // net/http tells of the panic
	for name, handler := range map[string]func(http.ResponseWriter, *http.Request){
		"return": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") },
		"panic":  func(http.ResponseWriter, *http.Request) { panic("boom") },
		"hang-up": func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		},
		"hijack": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nby hand")
			conn.Close()
		},
	} {
		way = handler
		ctx, hangUp := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/slow", nil)
			if err != nil {
				t.Error(err)
				return
			}
			if response, err := caller.Do(request); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		}()
		id := <-ids
		a := get(t, http.DefaultClient, server.URL+"/slow", "X-Api-Key", "another")
		if a.status != http.StatusTooManyRequests || a.header.Get("Budget-Limited-By") != "slow" {
			t.Errorf("%s: while it runs, another call is answered %d by %q", name, a.status, a.header.Get("Budget-Limited-By"))
		}
		begun <- struct{}{}
		if name == "hang-up" {
			hangUp()
		}
		<-ended
		waitFor(t, "the end of a call by "+name, func() bool {
			return story(t, client, id).State == budgetv1.ReservationState_RESERVATION_STATE_SETTLED
		})
		if charged := story(t, client, id).Outcome.Charged["requests"]; charged != 1 {
			t.Errorf("%s: %d requests charged, want 1", name, charged)
		}
		hangUp()
	}
}

// A handler that streams for longer than its lease keeps its reservation, its
// answer reaches the client while it runs, and it says itself what it used.
func TestLongStreamIsRenewed(t *testing.T) {
	client, _ := newClient(t)
	ids, seen := make(chan string, 1), make(chan struct{})
	server := serve(t, client, map[string]http.HandlerFunc{"GET /stream": func(w http.ResponseWriter, r *http.Request) {
		held := middleware.Reservation(r.Context())
		ids <- held.ID
		fmt.Fprintln(w, "first")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-seen
		for !time.Now().After(held.ExpiresAt.Add(500 * time.Millisecond)) {
			time.Sleep(20 * time.Millisecond) // the broker's clock is the judge
		}
		if !middleware.SetUsage(r.Context(), budget.Amounts(map[string]int64{"pages": 7})) {
			t.Error("SetUsage was not taken")
		}
		t.Cleanup(func() {
			if middleware.SetUsage(r.Context(), budget.Unused()) {
				t.Error("SetUsage was taken after the handler had returned")
			}
		})
	}}, middleware.WithRequest(func(*http.Request) budget.Request {
		return budget.Request{Account: "api", Amounts: map[string]int64{"pages": 50}, Lease: time.Second}
	}))
	response, err := http.Get(server.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got := response.Header.Get("RateLimit"); got != `"pages";r=50;t=4320000` {
		t.Errorf("RateLimit of the tightest limit: %s", got)
	}
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil || line != "first\n" {
		t.Errorf("the first line of a stream: %q, %v", line, err)
	}
	close(seen)
	_, _ = io.Copy(io.Discard, response.Body)
	id := <-ids
	waitFor(t, "the refund", func() bool { return story(t, client, id).Outcome != nil })
	s := story(t, client, id)
	if s.State != budgetv1.ReservationState_RESERVATION_STATE_SETTLED || s.Outcome.Charged["pages"] != 7 || s.Outcome.Charged["requests"] != 1 {
		t.Errorf("after a stream over its lease: %s, charged %v", s.State, s.Outcome.Charged)
	}
}
