package proxy

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/test/provider"
)

// A call that names its envelope takes from it, waits for nothing, and says nothing of
// it to the provider.
func TestCallsInAnEnvelope(t *testing.T) {
	r := start(t, func(r *rig) { r.config.MaxWait = 30 * time.Second })
	var seen http.Header
	r.serveAs(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		seen = request.Header.Clone()
		r.provider.ServeHTTP(w, request)
	}))
	envelope, err := r.broker.Reserve(t.Context(), budget.Request{Amounts: map[string]int64{"tokens": 100}})
	if err != nil {
		t.Fatal(err)
	}
	call := func(change func(http.Header)) (*http.Response, string) {
		t.Helper()
		request := r.request(t.Context(), chatPath, chat, provider.Script{Tokens: provider.Tokens{Input: 8, Output: 2}})
		request.Header.Set(headerBudgetParent, envelope.ID)
		change(request.Header)
		a, err := r.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		return a, read(t, a)
	}
	a, text := call(func(http.Header) {})
	if a.StatusCode != http.StatusOK || !strings.Contains(a.Header.Get("X-Budget-Charged"), "tokens=10") {
		t.Fatal(a.Status, a.Header, text)
	}
	for name := range seen {
		if strings.HasPrefix(name, "X-Budget-") {
			t.Errorf("the provider saw %s", name)
		}
	}
	story, err := r.broker.Service().GetReservation(t.Context(), connect.NewRequest(&budgetv1.GetReservationRequest{ReservationId: a.Header.Get("X-Budget-Reservation")}))
	if err != nil || story.Msg.Parent == "" {
		t.Errorf("%v, %v; want it in the envelope", story, err)
	}
	for _, bad := range []struct {
		says   string
		change func(http.Header)
	}{
		{"several headers X-Budget-Parent", func(h http.Header) { h.Add(headerBudgetParent, "another") }},
		{"no id of a reservation", func(h http.Header) { h.Set(headerBudgetParent, "") }},
		{"no id of a reservation", func(h http.Header) { h.Set(headerBudgetParent, "a b") }},
		{"no id of a reservation", func(h http.Header) { h.Set(headerBudgetParent, strings.Repeat("a", maxParent+1)) }},
		{"leave one out", func(h http.Header) { h.Set(headerBudgetMaxWait, "10s") }},
		{headerBudgetMaxWait + " is not a time", func(h http.Header) { h.Set(headerBudgetMaxWait, "soon") }},
	} {
		if a, text := call(bad.change); a.StatusCode != http.StatusBadRequest || !strings.Contains(text, bad.says) {
			t.Errorf("%d %s, want %q", a.StatusCode, text, bad.says)
		}
	}
	if a, text := call(func(h http.Header) { h.Set(headerBudgetMaxWait, "0s") }); a.StatusCode != http.StatusOK {
		t.Errorf("a wait for nothing: %d %s", a.StatusCode, text)
	}

	// 80 are left: what would take more is a spent quota, and not tried again.
	if _, err := r.broker.Reserve(t.Context(), budget.Request{Amounts: map[string]int64{"tokens": 70}, Parent: envelope.ID}); err != nil {
		t.Fatal(err)
	}
	if a, text := call(func(http.Header) {}); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("X-Budget-Reason") != "envelope_exhausted" || a.Header.Get("X-Should-Retry") != "false" {
		t.Errorf("%d %v %s, want the envelope exhausted", a.StatusCode, a.Header, text)
	}
	if _, err := r.broker.Refund(t.Context(), envelope.ID, budget.Unused()); err != nil {
		t.Fatal(err)
	}
	if a, text := call(func(http.Header) {}); a.StatusCode != http.StatusBadRequest || a.Header.Get("X-Budget-Error") != "failed_precondition" {
		t.Errorf("%d %v %s, want that the envelope is closed", a.StatusCode, a.Header, text)
	}
}

// What an error of a closed envelope is told as.
func TestStoppedFault(t *testing.T) {
	if f := stoppedFault(&budget.StoppedError{Err: budget.ErrEnded}); f == nil || !strings.Contains(f.Message, "closed") {
		t.Errorf("%+v", f)
	}
	if f := stoppedFault(budget.ErrEnded); f != nil {
		t.Errorf("any other error: %+v", f)
	}
}
