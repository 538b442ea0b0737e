package transport_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/budgetd/budgetd/clients/go/transport"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

const (
	smallChat  = `{"model":"gpt-4o-mini","max_completion_tokens":5,"messages":[{"role":"user","content":"Hi"}]}`
	chatAnswer = `{"id":"c","object":"chat.completion","choices":[],"usage":{"prompt_tokens":8,"completion_tokens":2,"total_tokens":10}}`
)

// inFlight is how many of the ten slots of an account are taken.
func (r *rig) inFlight(account string) int64 {
	r.t.Helper()
	quota, err := r.client.Service().GetQuota(context.Background(), connect.NewRequest(&budgetv1.GetQuotaRequest{Account: account}))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, limit := range quota.Msg.Limits {
		if limit.Limit == "slots" {
			return 10 - limit.Remaining
		}
	}
	r.t.Fatal("no limit named slots")
	return 0
}

// A call that may wait reaches its provider at its start, and not at all when its
// caller gives up before.
func TestMaxWait(t *testing.T) {
	var calls atomic.Int32
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
		calls.Add(1)
		pieces("application/json", chatAnswer)(w, request)
	}, transport.WithAccount("paced"), transport.WithMaxWait(time.Minute))
	began := time.Now()
	for range 2 {
		if a, text := r.call(chatPath, smallChat); a.StatusCode != http.StatusOK {
			t.Fatal(a.StatusCode, text)
		}
	}
	if waited := time.Since(began); waited < 900*time.Millisecond {
		t.Errorf("two calls at one a second took %v", waited)
	}

	hour := time.Hour
	r.use(transport.WithAccount("paced"), transport.WithCaller(func(*http.Request) (transport.Caller, error) {
		return transport.Caller{Labels: map[string]string{"route": "hourly"}, MaxWait: &hour}, nil
	}))
	if a, text := r.call(chatPath, smallChat); a.StatusCode != http.StatusOK {
		t.Fatal(a.StatusCode, text)
	}
	ctx, hangUp := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		a, err := r.post(ctx, chatPath, smallChat)
		if err == nil {
			a.Body.Close()
		}
		ended <- err
	}()
	wait := func(what string, taken int64) {
		t.Helper()
		for until := time.Now().Add(20 * time.Second); r.inFlight("paced") != taken; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s: %d slots are taken, want %d", what, r.inFlight("paced"), taken)
			}
		}
	}
	wait("the booking", 1)
	hangUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up got %v", err)
	}
	wait("the Refund", 0)

	// A caller with a deadline is refused at once what starts after it.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	a, err := r.post(ctx, chatPath, smallChat)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusTooManyRequests || a.Header.Get("X-Budget-Reason") != "rate_limited" || a.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v, want a refusal that says when", a.StatusCode, a.Header)
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("the provider was asked %d times, want 3", n)
	}
}
