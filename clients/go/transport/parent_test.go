package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/transport"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// envelope opens one of the account a.
func (r *rig) envelope(tokens int64) string {
	r.t.Helper()
	e, err := r.client.Reserve(context.Background(), budget.Request{Account: "a", Amounts: map[string]int64{"tokens": tokens}})
	if err != nil {
		r.t.Fatal(err)
	}
	return e.ID
}

// inside says whether an answer's reservation is in an envelope, "" for none. What is
// told of it is the beginning of a part of the id.
func (r *rig) inside(a *http.Response, envelope string) bool {
	r.t.Helper()
	story, err := r.client.Service().GetReservation(context.Background(), connect.NewRequest(&budgetv1.GetReservationRequest{ReservationId: a.Header.Get("X-Budget-Reservation")}))
	if err != nil {
		r.t.Fatal(err)
	}
	parent := story.Msg.Parent
	return (parent == "") == (envelope == "") && strings.Contains(envelope, parent[:min(20, len(parent))])
}

// The envelope is what the Caller says, else the context, else the option.
func TestParent(t *testing.T) {
	hour := time.Hour
	r := newRig(t, pieces("application/json", chatAnswer))
	option, inContext, caller := r.envelope(1000), r.envelope(1000), r.envelope(1000)
	byCaller := transport.WithCaller(func(*http.Request) (transport.Caller, error) {
		return transport.Caller{Parent: caller, MaxWait: &hour}, nil
	})
	post := func(ctx context.Context) *http.Response {
		t.Helper()
		a, err := r.post(ctx, chatPath, smallChat)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err != nil || a.StatusCode != http.StatusOK {
			t.Fatal(a.StatusCode, string(text), err)
		}
		return a
	}
	within := transport.ContextWithParent(t.Context(), inContext)
	for _, c := range []struct {
		name    string
		options []transport.Option
		ctx     context.Context
		want    string
	}{
		{"none", nil, t.Context(), ""},
		{"the option, with a wait that such calls have not", []transport.Option{transport.WithParent(option), transport.WithMaxWait(time.Minute)}, t.Context(), option},
		{"the context", []transport.Option{transport.WithParent(option)}, within, inContext},
		{"none by the context", []transport.Option{transport.WithParent(option)}, transport.ContextWithParent(within, ""), ""},
	} {
		r.use(c.options...)
		if !r.inside(post(c.ctx), c.want) {
			t.Errorf("%s: it is not in %.50q", c.name, c.want)
		}
	}
	// Who states both a wait and an envelope for one call is told so.
	r.use(byCaller)
	a, err := r.post(within, chatPath, smallChat)
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	if a.StatusCode != http.StatusBadRequest {
		t.Errorf("a wait in an envelope: %s", a.Status)
	}
	hour = 0
	if !r.inside(post(within), caller) {
		t.Error("the Caller: it is not in its envelope")
	}
}

// What an envelope has not left is refused as a spent quota is.
func TestEnvelopeIsExhausted(t *testing.T) {
	r := newRig(t, pieces("application/json", chatAnswer))
	r.use(transport.WithParent(r.envelope(3)))
	a, text := r.call(chatPath, smallChat)
	if a.StatusCode != http.StatusTooManyRequests || a.Header.Get("X-Budget-Reason") != "envelope_exhausted" || a.Header.Get("X-Should-Retry") != "false" {
		t.Errorf("%d %v %s", a.StatusCode, a.Header, text)
	}
	r.use(transport.WithParent("none"))
	if a, text := r.call(chatPath, smallChat); a.StatusCode < 400 || a.StatusCode > 499 {
		t.Errorf("in no envelope at all: %d %s", a.StatusCode, text)
	}
}

// Closing an envelope ends what is made in it: the stream breaks off, and the provider
// sees its caller go.
func TestEnvelopeIsClosedInAStream(t *testing.T) {
	gone := make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[{"delta":{"content":"Hello"}}]}`+"\n\n")
		w.(http.Flusher).Flush()
		<-request.Context().Done()
		close(gone)
	})
	envelope := r.envelope(1000)
	r.use(transport.WithParent(envelope), transport.WithLease(time.Second))
	a, err := r.post(t.Context(), chatPath, `{"model":"gpt-4o-mini","stream":true,"max_completion_tokens":50,"messages":[{"role":"user","content":"Hi"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if _, err := io.ReadAtLeast(a.Body, make([]byte, 100), 5); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if _, err := r.client.Refund(t.Context(), envelope, budget.Unused()); err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(a.Body)
	var stopped *budget.StoppedError
	if !errors.As(err, &stopped) || !errors.Is(err, budget.ErrEnded) {
		t.Errorf("the stream ended with %v", err)
	}
	<-gone
	if err := r.transport.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.settled); n != 1 || r.settled[0].Err != nil || r.settled[0].Charged["tokens"] == 0 {
		t.Errorf("settled: %+v", r.settled)
	}
}

// So does a call that has no answer yet.
func TestEnvelopeIsClosedBeforeTheAnswer(t *testing.T) {
	came := make(chan struct{})
	r := newRig(t, func(_ http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body)
		close(came)
		<-request.Context().Done()
	})
	envelope := r.envelope(1000)
	r.use(transport.WithParent(envelope), transport.WithLease(time.Second))
	ended := make(chan error, 1)
	go func() {
		a, err := r.post(context.Background(), chatPath, smallChat)
		if err == nil {
			a.Body.Close()
		}
		ended <- err
	}()
	<-came
	if _, err := r.client.Refund(t.Context(), envelope, budget.Unused()); err != nil {
		t.Fatal(err)
	}
	var stopped *budget.StoppedError
	if err := <-ended; !errors.As(err, &stopped) {
		t.Errorf("the call ended with %v", err)
	}
	if err := r.transport.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}
