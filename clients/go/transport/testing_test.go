package transport_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/transport"
	"github.com/budgetd/budgetd/estimator"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/test/broker"
)

const policy = `
plans:
  large:
    limits:
      - {name: tokens, meter: tokens, rate: 1/day, burst: 1000000000}
      - {name: slots, meter: in_flight, max: 1000}
  small:
    limits:
      - {name: tokens, meter: tokens, rate: 60000/min, burst: 1000}
    quotas:
      - {name: monthly, meter: cost, amount: $1, period: month}
  spent:
    quotas:
      - {name: yearly, meter: requests, amount: 1, period: year}
  paced:
    limits:
      - {name: calls, meter: requests, rate: 1/s}
      - {name: hourly, meter: requests, rate: 1/h, match: {route: hourly}}
      - {name: slots, meter: in_flight, max: 10}
accounts:
  paced: {plan: paced}
  a: {plan: large}
  small: {plan: small}
  spent: {plan: spent}
`

func TestMain(m *testing.M) { broker.Main(m) }

// rig is a provider, a broker and a Transport between them.
type rig struct {
	t         testing.TB
	broker    *broker.Broker
	client    *budget.Client
	key       string
	transport *transport.Transport
	provider  *httptest.Server
	http      *http.Client
	handler   atomic.Pointer[http.HandlerFunc]

	mu      sync.Mutex
	settled []transport.Settled
}

func newRig(t testing.TB, provider http.HandlerFunc, options ...transport.Option) *rig {
	t.Helper()
	b, key := broker.StartWith(t, policy, []string{"a", "small", "spent", "paced"}, "--deadline", "2s")
	r := &rig{t: t, key: key, broker: b}
	var err error
	if r.client, err = budget.New(r.broker.URL, key); err != nil {
		t.Fatal(err)
	}
	r.serve(provider)
	r.provider = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		(*r.handler.Load())(w, request)
	}))
	t.Cleanup(r.provider.Close)
	r.use(options...)
	return r
}

// use makes another Transport with the same broker and provider.
func (r *rig) use(options ...transport.Option) {
	r.transport = transport.New(r.client, append([]transport.Option{
		transport.WithAccount("a"),
		transport.WithSettled(func(s transport.Settled) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.settled = append(r.settled, s)
		}),
	}, options...)...)
	r.http = &http.Client{Transport: r.transport}
}

// serve changes what the provider does.
func (r *rig) serve(provider http.HandlerFunc) { r.handler.Store(&provider) }

func (r *rig) post(ctx context.Context, path, body string) (*http.Response, error) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.provider.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	return r.http.Do(request)
}

// call posts and reads the answer to its end.
func (r *rig) call(path, body string) (*http.Response, string) {
	r.t.Helper()
	response, err := r.post(context.Background(), path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response, string(text)
}

// take waits for the closings and returns them; every reservation has ended then.
func (r *rig) take(want int) []transport.Settled {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.transport.Wait(ctx); err != nil {
		r.t.Fatalf("a call did not end: %v", err)
	}
	quota, err := r.client.Service().GetQuota(ctx, connect.NewRequest(&budgetv1.GetQuotaRequest{Account: "a"}))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, limit := range quota.Msg.Limits {
		if limit.Limit == "slots" && limit.Remaining != 1000 {
			r.t.Errorf("%d slots are still taken", 1000-limit.Remaining)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	settled := r.settled
	r.settled = nil
	if len(settled) != want {
		r.t.Fatalf("%d closings, want %d: %+v", len(settled), want, settled)
	}
	for _, s := range settled {
		if s.Err != nil {
			r.t.Errorf("closing: %v", s.Err)
		}
	}
	return settled
}

// charged checks the one closing of a call.
func (r *rig) charged(input, output int64) {
	r.t.Helper()
	s := r.take(1)[0]
	if s.Charged["input_tokens"] != input || s.Charged["output_tokens"] != output {
		r.t.Errorf("charged %v, want %d tokens of input and %d of output", s.Charged, input, output)
	}
}

// pieces answers with pieces, each flushed.
func pieces(kind string, pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body)
		w.Header().Set("Content-Type", kind)
		for _, piece := range pieces {
			_, _ = io.WriteString(w, piece)
			w.(http.Flusher).Flush()
		}
	}
}

// cut is pieces whose connection breaks after them.
func cut(kind string, all ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		pieces(kind, all...)(w, request)
		panic(http.ErrAbortHandler)
	}
}

func data(chunk string) string { return "data: " + chunk + "\n\n" }

func count(t testing.TB, text string) int64 {
	t.Helper()
	n, err := estimator.Count(estimator.O200kBase, text)
	if err != nil {
		t.Fatal(err)
	}
	return int64(n)
}

const sse = "text/event-stream; charset=utf-8"

// chunk is one of an OpenAI chat stream.
func chunk(text string) string {
	return data(fmt.Sprintf(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o-mini","choices":[{"index":0,"delta":{"content":%q},"logprobs":null,"finish_reason":null}],"usage":null}`, text))
}

var (
	finishChunk = data(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}`)
	usageChunk  = data(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o-mini","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":6}}}`)
	doneChunk   = data("[DONE]")
)

var unused = budget.Unused()

// requestOf asks for tokens.
func requestOf(account string, tokens int64) budget.Request {
	return budget.Request{Account: account, Amounts: map[string]int64{"tokens": tokens}}
}

func jsonNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
