package transport_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/transport"
	"github.com/budgetd/budgetd/estimator/answer"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

const (
	messagesPath = "/v1/messages"
	geminiPath   = "/v1beta/models/gemini-2.5-flash:generateContent"
	bedrockPath  = "/model/anthropic.claude-sonnet-4-5-20250929-v1:0/converse-stream"
)

// asksFor are calls in each layout, with so many tokens of output.
func asksFor(output string) map[string]string {
	return map[string]string{
		chatPath:     `{"model":"gpt-4o-mini","max_tokens":` + output + `,"messages":[{"role":"user","content":"Hello"}]}`,
		messagesPath: `{"model":"claude-sonnet-4-5","max_tokens":` + output + `,"messages":[{"role":"user","content":"Hello"}]}`,
		geminiPath:   `{"contents":[{"parts":[{"text":"Hello"}]}],"generationConfig":{"maxOutputTokens":` + output + `}}`,
		bedrockPath:  `{"messages":[{"role":"user","content":[{"text":"Hello"}]}],"inferenceConfig":{"maxTokens":` + output + `}}`,
	}
}

// dig finds a value in a JSON text.
func dig(t *testing.T, text string, path ...string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

// TestRefusals: what limits refuse is an answer in each provider's own shape, and
// nothing is sent.
func TestRefusals(t *testing.T) {
	r := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("a refused call was sent") }, bedrockHere, transport.WithAccount("small"))
	hold, err := r.client.Reserve(context.Background(), requestOf("small", 990))
	if err != nil {
		t.Fatal(err)
	}
	type want struct {
		status      int
		path        []string
		value       any
		header      string
		headerValue string
	}
	for output, wants := range map[string]map[string]want{
		"900": { // the bucket refills
			chatPath:     {429, []string{"error", "code"}, "rate_limit_exceeded", "X-Should-Retry", "true"},
			messagesPath: {429, []string{"error", "type"}, "rate_limit_error", "X-Should-Retry", "true"},
			geminiPath:   {429, []string{"error", "status"}, "RESOURCE_EXHAUSTED", "X-Should-Retry", "true"},
			bedrockPath:  {429, nil, nil, "X-Amzn-Errortype", "ThrottlingException"},
		},
		"5000": { // more than the bucket ever holds
			chatPath:     {429, []string{"error", "code"}, "insufficient_quota", "X-Should-Retry", "false"},
			messagesPath: {429, []string{"error", "type"}, "rate_limit_error", "X-Should-Retry", "false"},
			geminiPath:   {429, []string{"error", "status"}, "RESOURCE_EXHAUSTED", "X-Should-Retry", "false"},
			bedrockPath:  {400, nil, nil, "X-Amzn-Errortype", "ServiceQuotaExceededException"},
		},
	} {
		for path, ask := range asksFor(output) {
			response, text := r.call(path, ask)
			w := wants[path]
			if response.StatusCode != w.status || response.Header.Get(w.header) != w.headerValue {
				t.Errorf("%s, %s: %s, %v", path, output, response.Status, response.Header)
			}
			if got := dig(t, text, w.path...); w.path != nil && got != w.value {
				t.Errorf("%s, %s: %s", path, output, text)
			}
			if response.Header.Get("X-Budget-Limit") != "tokens" || response.Header.Get("X-Budget-Reason") == "" || response.Header.Get("X-Budget-Meter") != "tokens" {
				t.Errorf("%s: the limit is not named: %v", path, response.Header)
			}
			after := response.Header.Get("Retry-After")
			if output == "900" && (after != "1" || response.Header.Get("Retry-After-Ms") != "1000") || output != "900" && after != "" {
				t.Errorf("%s, %s: retry after %q", path, output, after)
			}
		}
	}
	if _, err := r.client.Refund(context.Background(), hold.ID, unused); err != nil {
		t.Error(err)
	}
	// A quota that resets in a year is not waited for.
	r.use(transport.WithAccount("spent"))
	r.serve(pieces("application/json", `{"usage":{"prompt_tokens":1,"completion_tokens":1}}`))
	r.call(chatPath, chatAsk)
	r.take(1)
	response, text := r.call(chatPath, chatAsk)
	if response.StatusCode != 429 || dig(t, text, "error", "code") != "insufficient_quota" || dig(t, text, "error", "type") != "insufficient_quota" ||
		response.Header.Get("X-Budget-Reason") != "quota_exhausted" || response.Header.Get("X-Budget-Resets-At") == "" || response.Header.Get("Retry-After") != "" {
		t.Errorf("%s %v %s", response.Status, response.Header, text)
	}
	r.take(0)
}

// TestWhatCannotBeBudgeted is refused before it is sent, and says why.
func TestWhatCannotBeBudgeted(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) { w.WriteHeader(http.StatusTeapot) }, transport.WithMaxBody(1000))
	for _, example := range []struct {
		path, ask string
		status    int
	}{
		{chatPath, `{"model":`, 400},
		{chatPath, `[]`, 400},
		{chatPath, "", 400},
		{chatPath, `{"model":"nobody-knows-this","messages":[]}`, 400},
		{chatPath, strings.Repeat(`{"a":`, 150) + "1", 400},
		{messagesPath, `{"x":"` + strings.Repeat("x", 1000) + `"}`, 413},
		{"/v1/models", `{}`, http.StatusTeapot}, // not recognised: passed through
	} {
		response, text := r.call(example.path, example.ask)
		if response.StatusCode != example.status || strings.Contains(text, "xxxx") {
			t.Errorf("%s %.40s: %s %s", example.path, example.ask, response.Status, text)
		}
	}
	r.take(0)
	r.use(transport.WithRefuseUnrecognised())
	response, text := r.call("/v1/models", `{}`)
	if response.StatusCode != http.StatusForbidden || dig(t, text, "error", "message") != "budget: POST /v1/models is not one of the calls that are budgeted" {
		t.Errorf("an unrecognised call: %s %s", response.Status, text)
	}
	// Whoever decides may say it in words of their own, or let the call pass.
	r.use(transport.WithUnrecognised(func(request *http.Request, err *transport.UnrecognisedError) *http.Response {
		if err.Path == "/v1/files" {
			return nil
		}
		return (&transport.Fault{Kind: transport.FaultNotFound, Message: "not here: " + err.Path}).Answer(request, answer.Anthropic)
	}))
	if response, text := r.call("/v1/models", `{}`); response.StatusCode != http.StatusNotFound || dig(t, text, "error", "message") != "not here: /v1/models" {
		t.Errorf("an unrecognised call: %s %s", response.Status, text)
	}
	if response, _ := r.call("/v1/files", `{}`); response.StatusCode != http.StatusTeapot {
		t.Errorf("a call that may pass: %s", response.Status)
	}
	r.use(transport.WithMaxUnderWay(50))
	if response, text := r.call(chatPath, chatAsk); response.StatusCode != http.StatusRequestEntityTooLarge || dig(t, text, "error", "message") != "budget: the body is over 50 bytes" {
		t.Errorf("a body beyond the room: %s %s", response.Status, text)
	}
	r.use()
	if response, text := r.call(chatPath, `{"x":[`+strings.Repeat("0,", 400_000)+`0]}`); response.StatusCode != http.StatusBadRequest || dig(t, text, "error", "message") != "budget: the body has more than 400000 JSON values: send less in one request" {
		t.Errorf("a body of many values: %s %s", response.Status, text)
	}
	r.use(transport.WithAccount("somebody-else"))
	if response, text := r.call(chatPath, chatAsk); response.StatusCode != http.StatusForbidden || dig(t, text, "error", "code") != "budget_denied" {
		t.Errorf("another's account: %s %s", response.Status, text)
	}
	r.use(transport.WithCaller(func(*http.Request) (transport.Caller, error) { return transport.Caller{}, io.ErrNoProgress }))
	if _, err := r.post(context.Background(), chatPath, chatAsk); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("the caller's error: %v", err)
	}
	r.use()
	r.broker.Kill()
	response, text = r.call(messagesPath, asksFor("10")[messagesPath])
	if response.StatusCode != http.StatusServiceUnavailable || dig(t, text, "error", "type") != "api_error" || response.Header.Get("X-Should-Retry") != "true" ||
		dig(t, text, "error", "message") != "budget: no broker answers; try again" { // and not where one should be
		t.Errorf("without a broker: %s %s", response.Status, text)
	}
}

// TestProviderErrors use nothing, whatever their body, unless it tells a usage.
func TestProviderErrors(t *testing.T) {
	var limits []transport.ProviderLimit
	r := newRig(t, nil, transport.WithProviderLimits(func(l transport.ProviderLimit) { limits = append(limits, l) }))
	for _, example := range []struct {
		status  int
		kind    string
		text    string
		charged int64
	}{
		{429, "application/json", `{"error":{"code":"rate_limit_exceeded"}}`, 0},
		{500, "text/html", `<html>`, 0},
		{503, "application/json", ``, 0},
		{400, "application/json", `{"error":{},"usage":{"prompt_tokens":3,"completion_tokens":4}}`, 7},
		{200, sse, data(`{"type":"error","error":{"type":"overloaded_error"}}`), 0},
	} {
		r.serve(func(w http.ResponseWriter, request *http.Request) {
			w.Header().Set("Content-Type", example.kind)
			if example.status == 429 {
				w.Header().Set("Retry-After", "7")
				w.Header().Set("x-ratelimit-limit-tokens", "30000")
				w.Header().Set("x-ratelimit-remaining-tokens", "12")
				w.Header().Set("x-ratelimit-reset-tokens", "6m0.5s")
			}
			w.WriteHeader(example.status)
			_, _ = io.WriteString(w, example.text)
		})
		response, text := r.call(chatPath, chatAsk)
		if response.StatusCode != example.status || text != example.text {
			t.Errorf("%d became %s %s", example.status, response.Status, text)
		}
		if s := r.take(1)[0]; s.Charged["tokens"] != example.charged || s.Charged["requests"] != 0 && example.charged == 0 || s.Status != example.status {
			t.Errorf("%d was charged %v", example.status, s)
		}
	}
	host := strings.TrimPrefix(r.provider.URL, "http://")
	want := []transport.ProviderLimit{{
		Provider: "openai", Host: host, Model: "gpt-4o-mini", Refused: true, RetryAfter: 7 * time.Second,
		Levels: []transport.ProviderLevel{{Name: "tokens", Limit: 30000, Remaining: 12, Reset: 360500 * time.Millisecond}},
	}}
	if !reflect.DeepEqual(limits, want) {
		t.Errorf("limits %+v", limits)
	}
}

// TestHoldBack: while the provider asks to wait, a Transport may refuse by itself,
// for the same model and credential only.
func TestHoldBack(t *testing.T) {
	var sent atomic.Int32
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		sent.Add(1)
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
	}, transport.WithHoldBack())
	r.call(chatPath, chatAsk)
	r.take(1)
	response, text := r.call(chatPath, chatAsk)
	if response.StatusCode != 429 || response.Header.Get("Retry-After") != "30" || response.Header.Get("X-Budget-Reason") != "provider_limited" || dig(t, text, "error", "code") != "rate_limit_exceeded" {
		t.Errorf("%s %v %s", response.Status, response.Header, text)
	}
	r.take(0)
	r.call(chatPath, strings.Replace(chatAsk, "gpt-4o-mini", "gpt-4o", 1))
	if r.take(1); sent.Load() != 2 {
		t.Errorf("%d calls were sent, want 2", sent.Load())
	}
}

// TestNoAnswer: what a call is charged whose answer never came.
func TestNoAnswer(t *testing.T) {
	r := newRig(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := r.post(context.Background(), chatPath, chatAsk); err == nil {
		t.Error("a broken connection is no error")
	}
	if s := r.take(1)[0]; s.Charged["output_tokens"] != 100 { // the provider may have worked
		t.Errorf("a broken connection was charged %v", s.Charged)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + listener.Addr().String()
	listener.Close()
	request, err := http.NewRequest(http.MethodPost, nobody+chatPath, strings.NewReader(chatAsk))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.http.Do(request); err == nil {
		t.Error("nobody listens, and no error")
	}
	if s := r.take(1)[0]; s.Charged["tokens"] != 0 || s.Status != 0 {
		t.Errorf("a call to nobody was charged %v", s)
	}
	// The caller hangs up while the provider works: nobody knows.
	arrived := make(chan struct{})
	r.serve(func(_ http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body)
		close(arrived)
		<-request.Context().Done()
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-arrived; cancel() }()
	if _, err := r.post(ctx, chatPath, chatAsk); !errors.Is(err, context.Canceled) {
		t.Errorf("a hang-up: %v", err)
	}
	if s := r.take(1)[0]; s.Charged["output_tokens"] != 100 {
		t.Errorf("a hang-up was charged %v", s.Charged)
	}
	// The caller gives up while the connection is being made: nothing was sent.
	dialling, giveUp := context.WithCancel(context.Background())
	r.use(transport.WithBase(&http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		giveUp()
		<-ctx.Done()
		return nil, ctx.Err()
	}}))
	if _, err := r.post(dialling, chatPath, chatAsk); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that gives up: %v", err)
	}
	if s := r.take(1)[0]; s.Charged["tokens"] != 0 {
		t.Errorf("a call without a connection was charged %v", s.Charged)
	}
	// A base that panics.
	r.use(transport.WithBase(roundTripper(func(*http.Request) (*http.Response, error) { panic("boom") })))
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic did not reach the caller")
			}
		}()
		_, _ = r.post(context.Background(), chatPath, chatAsk)
	}()
	if s := r.take(1)[0]; s.Charged["output_tokens"] != 100 {
		t.Errorf("a panic was charged %v", s.Charged)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// TestUsageThatIsNone: an answer whose usage is no usage counts as unknown.
func TestUsageThatIsNone(t *testing.T) {
	r := newRig(t, nil)
	for _, text := range []string{`{"usage":{"prompt_tokens":-3,"completion_tokens":4}}`, `{"usage":{"hello":1}}`, `{"usage":7}`, `{"cut":`, ``} {
		r.serve(pieces("application/json", text))
		r.call(chatPath, chatAsk)
		if s := r.take(1)[0]; s.Charged["output_tokens"] != 100 {
			t.Errorf("%s was charged %v", text, s.Charged)
		}
	}
	// JSON decoders stop at the end of the value, without reading the end.
	r.serve(pieces("application/json", `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`+"\n"))
	response, err := r.post(context.Background(), chatPath, chatAsk)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.NewDecoder(response.Body).Decode(&object); err != nil {
		t.Error(err)
	}
	response.Body.Close()
	r.charged(3, 4)
}

// TestReadToTheEnd: an answer that was read to its end is charged, though nobody
// closes it, also when the end comes with the last bytes.
func TestReadToTheEnd(t *testing.T) {
	const text = `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`
	r := newRig(t, nil, transport.WithBase(roundTripper(func(request *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(iotest.DataErrReader(strings.NewReader(text))), Request: request}, nil
	})))
	response, err := r.post(context.Background(), chatPath, chatAsk)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(response.Body); err != nil || string(got) != text {
		t.Errorf("%s, %v", got, err)
	}
	r.charged(3, 4)
	response.Body.Close()
}

// TestCompressedAnswers: who asks for compression gets a plain answer, which can be
// read along; net/http's own compression goes on behind the scenes.
func TestCompressedAnswers(t *testing.T) {
	r := newRig(t, nil)
	for _, asks := range []string{"", "gzip, br"} {
		r.serve(func(w http.ResponseWriter, request *http.Request) {
			if got := request.Header.Get("Accept-Encoding"); asks != "" && got != "identity" || asks == "" && got != "gzip" {
				t.Errorf("asked for %q, sent %q", asks, got)
			}
			pieces("application/json", `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`)(w, request)
		})
		request, err := http.NewRequest(http.MethodPost, r.provider.URL+chatPath, strings.NewReader(chatAsk))
		if err != nil {
			t.Fatal(err)
		}
		if asks != "" {
			request.Header.Set("Accept-Encoding", asks)
		}
		response, err := r.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		r.charged(3, 4)
		if request.Header.Get("Accept-Encoding") != asks {
			t.Error("the caller's request was changed")
		}
	}
}

// TestGrantedOutput: a call may get less than it asks for, and is told so.
func TestGrantedOutput(t *testing.T) {
	r := newRig(t, nil, transport.WithAccount("small"), transport.WithGrantedOutput(50))
	for path, field := range map[string][]string{
		chatPath:     {"max_tokens"},
		messagesPath: {"max_tokens"},
		geminiPath:   {"generationConfig", "maxOutputTokens"},
	} {
		var sent string
		r.serve(func(w http.ResponseWriter, request *http.Request) {
			body, _ := io.ReadAll(request.Body)
			sent = string(body)
			w.WriteHeader(http.StatusInternalServerError)
		})
		ask := asksFor("5000")[path] // the bucket has 1,000
		if response, text := r.call(path, ask); response.StatusCode != http.StatusInternalServerError {
			t.Fatalf("%s: %s", response.Status, text)
		}
		granted, _ := dig(t, sent, field...).(float64)
		if granted < 900 || granted >= 1000 {
			t.Errorf("%s: granted %v", path, granted)
		}
		if want := strings.Replace(ask, "5000", "N", 1); strings.Replace(sent, jsonNumber(granted), "N", 1) != want {
			t.Errorf("more was changed than the bound: %s", sent)
		}
		r.take(1)
	}
}

// TestUnreadAnswersEnd: an answer that nobody reads or closes holds for a lease
// or two, and what it used counts when somebody does.
func TestUnreadAnswersEnd(t *testing.T) {
	r := newRig(t, pieces(sse, chunk("Hi"), usageChunk, doneChunk), transport.WithLease(300*time.Millisecond))
	response, err := r.post(context.Background(), chatPath, chatFlow)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	id := response.Header.Get("X-Budget-Reservation")
	deadline := time.Now().Add(15 * time.Second)
	for {
		story, err := r.client.Service().GetReservation(context.Background(), connect.NewRequest(&budgetv1.GetReservationRequest{ReservationId: id}))
		if err != nil {
			t.Fatal(err)
		}
		if story.Msg.State == budgetv1.ReservationState_RESERVATION_STATE_EXPIRED {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is %s still", story.Msg.State)
		}
		time.Sleep(50 * time.Millisecond) // the broker's clock decides: poll, with a deadline
	}
	_, _ = io.Copy(io.Discard, response.Body)
	r.charged(19, 10)
}

// TestChargeHeaders: what was charged, in a header of a plain answer and a trailer of
// a stream.
func TestChargeHeaders(t *testing.T) {
	r := newRig(t, pieces("application/json", `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`), transport.WithChargeHeaders(), transport.WithSettleWait(10*time.Second))
	response, text := r.call(chatPath, chatAsk)
	if got := response.Header.Get("X-Budget-Charged"); !strings.Contains(got, "input_tokens=3, output_tokens=4, requests=1, tokens=7") || !strings.HasPrefix(got, "cost=") || !strings.Contains(text, "usage") {
		t.Errorf("%q, %s", got, text)
	}
	r.take(1)
	r.serve(pieces(sse, chunk("Hi"), usageChunk, doneChunk))
	response, text = r.call(chatPath, chatFlow)
	if got := response.Trailer.Get("X-Budget-Charged"); !strings.Contains(got, "tokens=29") || text != chunk("Hi")+doneChunk {
		t.Errorf("%q, %s", got, text)
	}
	r.take(1)
	r.serve(cut("application/json", `{"usage":{"prompt`))
	response, err := r.post(context.Background(), chatPath, chatAsk)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(response.Body)
	response.Body.Close()
	if string(got) != `{"usage":{"prompt` || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut answer became %s, %v", got, err)
	}
	r.take(1)
}

// TestSettleWait: with none, the end of an answer does not wait for the broker.
func TestSettleWait(t *testing.T) {
	r := newRig(t, pieces("application/json", `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`))
	goOn := make(chan struct{})
	slow, err := budget.New(r.broker.URL, r.key, budget.WithHTTPClient(&http.Client{Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
		if strings.HasSuffix(request.URL.Path, "/Refund") {
			<-goOn
		}
		return http.DefaultTransport.RoundTrip(request)
	})}))
	if err != nil {
		t.Fatal(err)
	}
	r.client = slow
	r.use(transport.WithSettleWait(0))
	response, err := r.post(context.Background(), chatPath, chatAsk)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.transport.Wait(over); !errors.Is(err, context.Canceled) {
		t.Errorf("a call whose closing is under way is waited for as %v", err)
	}
	close(goOn)
	r.charged(3, 4)
}

// TestManyAtOnce: calls of all kinds and ends at once, and each is charged what it
// used.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		if strings.Contains(string(body), `"stream":true`) {
			pieces(sse, chunk("Hello"), chunk(" there"), usageChunk, doneChunk)(w, request)
			return
		}
		pieces("application/json", `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`)(w, request)
	})
	const callers, each = 16, 12
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := range each {
				ask := chatAsk
				if (caller+i)%2 == 0 {
					ask = chatFlow
				}
				response, err := r.post(context.Background(), chatPath, ask)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		})
	}
	wg.Wait()
	var sum int64
	for _, s := range r.take(callers * each) {
		sum += s.Charged["tokens"]
	}
	if want := int64(callers * each / 2 * (29 + 7)); sum != want {
		t.Errorf("charged %d tokens, want %d", sum, want)
	}
}

// BenchmarkPlainCall is a call through the Transport against the bare one.
func BenchmarkPlainCall(b *testing.B) {
	provider := httptest.NewServer(pieces("application/json", `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`))
	b.Cleanup(provider.Close)
	r := newRig(b, pieces("application/json", `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`))
	for name, client := range map[string]*http.Client{"bare": {}, "budgeted": r.http} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				response, err := client.Post(provider.URL+chatPath, "application/json", strings.NewReader(chatAsk))
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		})
	}
}
