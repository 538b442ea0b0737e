package budget_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
)

// Callers with little time of their own say nothing of a broker that is not given
// its deadline: nobody else is refused, or let through, for them.
func TestHastyCallersBlameNoBroker(t *testing.T) {
	c, b := start(t)
	g := newGate(t, b.URL)
	client, err := budget.New(g.URL, c.Key(), budget.WithDeadline(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	g.does.Store(hangs)
	for range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		if _, err := client.Reserve(ctx, hundred); err == nil {
			t.Error("a broker that hangs granted")
		}
		cancel()
	}
	g.does.Store(passes)
	if r, err := client.Reserve(t.Context(), hundred); err != nil || r.Degraded {
		t.Errorf("the next caller: %+v, %v", r, err)
	}
}

// What no message can carry is the caller's fault, and no broker is taken to be away.
func TestTextThatIsNotUTF8(t *testing.T) {
	client, _ := start(t, budget.WithWhenDown(budget.Open()))
	for field, request := range map[string]budget.Request{
		`label "user"`:    {Labels: map[string]string{"user": "\xff"}},
		`label "\xff"`:    {Labels: map[string]string{"\xff": "a"}},
		"account":         {Account: "a\xff"},
		"idempotency key": {Key: "\xff"},
		`meter "\xff"`:    {Amounts: map[string]int64{"\xff": 1}},
	} {
		if _, err := client.Reserve(t.Context(), request); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), field+" is not UTF-8") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// A call that nobody gave up here was not cancelled, whatever is said of it: where a
// broker was killed under it, it is worth another try.
func TestNobodyCancelled(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(499)
		_, _ = io.WriteString(w, `{"code":"canceled","message":"the broker ends"}`)
	}))
	defer server.Close()
	client, err := budget.New(server.URL, "key")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Refund(t.Context(), "some", budget.Unused()); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Refund(ctx, "some", budget.Unused()); connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("a caller that gave up: %v", err)
	}
}
