package sdks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"google.golang.org/genai"

	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/provider"
)

// upstreams points a proxy at the provider.
func (r *rig) upstreams() []string {
	return []string{"--upstream", "openai=" + r.bases.gemini + " anthropic=" + r.bases.gemini + " gemini=" + r.bases.gemini}
}

// proxy starts a proxy that holds the provider's keys, and returns it with the
// base URLs of the SDKs for it.
func (r *rig) proxy(t testing.TB, more ...string) (*broker.Broker, bases) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(providerKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(r.upstreams(), "--provider-key", "openai=@"+file, "--provider-key", "anthropic=@"+file, "--provider-key", "gemini=@"+file)
	p := broker.StartProxy(t, r.broker, append(args, more...)...)
	return p, basesOf(p)
}

func basesOf(p *broker.Broker) bases {
	return bases{openai: p.URL + "/openai/v1", anthropic: p.URL + "/anthropic", gemini: p.URL + "/gemini"}
}

// Through the proxy, with nothing changed but the base URL and the key, the
// ledger is what the provider bills. Neither side sees the other's key.
func TestProxy(t *testing.T) {
	r := start(t)
	p, base := r.proxy(t)
	r.runAll(t, newClients(t, base, r.key, &http.Client{}), scenarios())
	if r.Saw(r.key) {
		t.Error("the provider saw a budget key")
	}
	for _, log := range []string{p.Log(), r.broker.Log()} {
		for _, secret := range []string{r.key, providerKey, prompt + `"`} {
			if strings.Contains(log, secret) {
				t.Errorf("a log has %q", secret)
			}
		}
	}
	if strings.Contains(r.broker.Log(), providerKey) {
		t.Error("the broker saw the provider's key")
	}
}

// At the paths that SDKs add to a base URL without a name, and with keys that
// pass through.
func TestProxyBarePathsAndOwnKeys(t *testing.T) {
	r := start(t)
	p := broker.StartProxy(t, r.broker, r.upstreams()...)
	c := newClients(t, bases{openai: p.URL + "/v1", anthropic: p.URL, gemini: p.URL}, providerKey, &http.Client{Transport: adding{"X-Budget-Key", r.key}})
	for _, e := range []endpoint{chatPlain, chatStream, responsesPlain, embeddings, messagesPlain, messagesStream, generatePlain, generateStream} {
		before, billed := r.settled(t), r.provided()
		if _, err := e.call(context.Background(), c, provider.Script{ID: "bare " + e.name, Pieces: words, Tokens: provider.Tokens{Input: 5}}); err != nil {
			t.Errorf("%s: %v", e.name, err)
		}
		if got, want := r.settled(t).minus(before), r.provided().minus(billed); got != want || want.Cost == 0 {
			t.Errorf("%s: the ledger has %+v, the provider bills %+v", e.name, got, want)
		}
	}
	if r.Saw(r.key) || r.Saw("X-Budget") {
		t.Error("the provider saw a budget key or header")
	}
	without := newClients(t, bases{openai: p.URL + "/v1", anthropic: p.URL, gemini: p.URL}, providerKey, &http.Client{})
	for _, e := range []endpoint{chatPlain, messagesStream, generatePlain} {
		if _, err := e.call(context.Background(), without, provider.Script{ID: "no budget key"}); statusOf(err) != http.StatusUnauthorized {
			t.Errorf("%s without a budget key: %v", e.name, err)
		}
	}
	for _, call := range r.Calls() {
		if call.ID == "no budget key" {
			t.Error("a call without a budget key reached the provider")
		}
	}
}

// adding is an http.RoundTripper that adds a header.
type adding struct{ name, value string }

// RoundTrip adds it.
func (a adding) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(a.name, a.value)
	return http.DefaultTransport.RoundTrip(r)
}

// counting is an http.RoundTripper that counts tries, and keeps the last header.
type counting struct {
	tries int
	last  http.Header
}

// RoundTrip counts one.
func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.tries++
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		c.last = answer.Header
	}
	return answer, err
}

// A quota that is spent is refused in each provider's shape, which its SDK does
// not try again; so is a key that the broker does not know. Nothing reaches the
// provider.
func TestProxyRefusals(t *testing.T) {
	r := start(t)
	_, base := r.proxy(t)
	for _, refusal := range []struct {
		what, key string
		status    int
	}{
		{"a spent quota", r.keyOf(t, "poor"), http.StatusTooManyRequests},
		{"an unknown key", "nobody's", http.StatusUnauthorized},
	} {
		for _, e := range []endpoint{chatPlain, chatStream, responseStream, embeddings, messagesPlain, messagesStream} {
			tries := &counting{}
			c := newClients(t, base, refusal.key, &http.Client{Transport: tries})
			_, err := e.call(context.Background(), c, provider.Script{ID: refusal.what})
			if statusOf(err) != refusal.status {
				t.Errorf("%s of %s: %v", e.name, refusal.what, err)
			}
			if tries.tries != 1 || tries.last.Get("X-Should-Retry") != "false" {
				t.Errorf("%s of %s: %d tries, %v", e.name, refusal.what, tries.tries, tries.last)
			}
			var told *openai.Error
			if errors.As(err, &told) && refusal.status == http.StatusTooManyRequests && told.Code != "insufficient_quota" {
				t.Errorf("%s: %v has the code %q", e.name, err, told.Code)
			}
		}
		c := newClients(t, base, refusal.key, &http.Client{})
		_, err := c.gemini.Models.GenerateContent(context.Background(), flash, genai.Text(prompt), geminiConfig(provider.Script{ID: refusal.what}))
		if statusOf(err) != refusal.status {
			t.Errorf("gemini of %s: %v", refusal.what, err)
		}
	}
	if calls := r.Calls(); len(calls) != 0 {
		t.Errorf("%d calls reached the provider", len(calls))
	}
}

// A rate limit is told with Retry-After, so that the SDK waits and then passes.
func TestProxyRateLimit(t *testing.T) {
	r := start(t)
	_, base := r.proxy(t)
	tries := &counting{}
	c := newClients(t, base, r.keyOf(t, "slow"), &http.Client{Transport: tries})
	for i := range 2 {
		if _, err := callChat(context.Background(), c, provider.Script{ID: "paced"}); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if tries.tries < 3 || len(r.Calls()) != 2 {
		t.Errorf("%d tries, %d calls at the provider: want a refused try between two calls", tries.tries, len(r.Calls()))
	}
}

// While no broker answers, calls are refused with 503 and do not reach the
// provider.
func TestProxyWithoutBroker(t *testing.T) {
	r := start(t)
	_, base := r.proxy(t, "--broker-deadline", "200ms")
	r.broker.Kill()
	c := newClients(t, base, r.key, &http.Client{})
	_, err := c.openai.Chat.Completions.New(context.Background(), chatParams(), openaioption.WithMaxRetries(0))
	if statusOf(err) != http.StatusServiceUnavailable || len(r.Calls()) != 0 {
		t.Errorf("%v; %d calls reached the provider", err, len(r.Calls()))
	}
}

// An event is passed on when it comes: the client has it while the provider
// waits before the next.
func TestProxyStreamsAtOnce(t *testing.T) {
	r := start(t)
	_, base := r.proxy(t)
	c := newClients(t, base, r.key, &http.Client{})
	const id = "stepped"
	go r.Step(id) // NewStreaming returns with the header
	stream := c.openai.Chat.Completions.NewStreaming(context.Background(), chatParams(), openaiScript(provider.Script{ID: id, Pieces: words, Steps: true, Tokens: provider.Tokens{Input: 8}}))
	next := func() string {
		t.Helper()
		if !stream.Next() {
			t.Fatal(stream.Err())
		}
		return stream.Current().Choices[0].Delta.Content
	}
	if got := next(); got != "" {
		t.Errorf("the first chunk has %q", got)
	}
	for _, word := range words {
		r.Step(id)
		if got := next(); got != word {
			t.Errorf("the next chunk has %q, want %q", got, word)
		}
	}
	for stream.Next() {
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if got, want := r.settled(t), r.provided(); got != want {
		t.Errorf("the ledger has %+v, the provider bills %+v", got, want)
	}
}

// A caller that hangs up ends the call at the provider, and pays for what was
// seen.
func TestProxyHangUp(t *testing.T) {
	r := start(t)
	_, base := r.proxy(t)
	c := newClients(t, base, r.key, &http.Client{})
	const id = "hung up"
	ctx, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	go func() {
		for range 3 {
			r.Step(id)
		}
	}()
	stream := c.openai.Chat.Completions.NewStreaming(ctx, chatParams(), openaiScript(provider.Script{ID: id, Pieces: words, Steps: true, Tokens: provider.Tokens{Input: promptTokens}}))
	for range 3 { // the role, and two words
		if !stream.Next() {
			t.Fatal(stream.Err())
		}
	}
	hangUp()
	got := r.settled(t)
	if want := (books{Input: promptTokens, Output: 2, Cost: prices[gpt].Cost(provider.Tokens{Input: promptTokens, Output: 2})}); got != want {
		t.Errorf("the ledger has %+v, want %+v", got, want)
	}
}

// post sends a body as a program without an SDK does.
func post(t *testing.T, url, key string, body any, header ...string) (*http.Response, []byte) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, read
}

// Headers tell what a call was charged: of a stream in a trailer. Labels reach
// the ledger.
func TestProxyTellsCharges(t *testing.T) {
	r := start(t)
	_, base := r.proxy(t)
	ask := map[string]any{"model": gpt, "messages": []any{map[string]any{"role": "user", "content": prompt}}}
	script := provider.Script{ID: "told", Pieces: words, Tokens: provider.Tokens{Input: 8}}.String()
	// An answer waits for its charge, not for long: on a busy machine it may come without.
	told := func() (answer *http.Response, text []byte) {
		for range 10 {
			answer, text = post(t, base.openai+"/chat/completions", r.key, ask, provider.Header, script, "X-Budget-Labels", "route=chat, team=search")
			if answer.Header.Get("X-Budget-Charged") != "" || answer.Trailer.Get("X-Budget-Charged") != "" {
				break
			}
		}
		return answer, text
	}
	plain, _ := told()
	if got := plain.Header.Get("X-Budget-Charged"); !strings.Contains(got, "output_tokens=5") || plain.Header.Get("X-Budget-Reservation") == "" {
		t.Errorf("charged %q, header %v", got, plain.Header)
	}
	ask["stream"] = true
	streamed, text := told()
	if got := streamed.Trailer.Get("X-Budget-Charged"); !strings.Contains(got, "output_tokens=5") || streamed.Header.Get("X-Budget-Reservation") == "" {
		t.Errorf("charged %q in the trailer, header %v", got, streamed.Header)
	}
	if bytes.Contains(text, []byte("prompt_tokens")) || !bytes.HasSuffix(text, []byte("data: [DONE]\n\n")) {
		t.Errorf("the stream has what was not asked for:\n%s", text)
	}
	usage := broker.Run(t, "usage", "--server", r.broker.URL, "--key-file", r.keyFile(t), "--from", "this-month", "--group-by", "route,team", "--meter", "output_tokens", "--json")
	if !strings.Contains(usage, `"route":"chat"`) || !strings.Contains(usage, `"team":"search"`) {
		t.Errorf("the ledger does not have the labels: %s", usage)
	}
}

func (r *rig) keyFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(r.key), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// What can't be budgeted does not get through on the provider's key: other
// endpoints, other paths, bodies that are too large or no JSON. Lists of models
// cost nothing, and need a key that the broker knows.
func TestProxyRefusesWhatItCannotBudget(t *testing.T) {
	r := start(t)
	_, base := r.proxy(t, "--max-request-bytes", "65536")
	for _, bad := range []struct {
		path   string
		key    string
		body   any
		header []string
		status int
	}{
		{"/images/generations", r.key, map[string]any{"model": gpt}, nil, http.StatusForbidden},
		{"/chat/completions/../files", r.key, map[string]any{}, nil, http.StatusNotFound},
		{"/%2e%2e/%2e%2e/v1/chat/completions", r.key, map[string]any{}, nil, http.StatusNotFound},
		{"/chat/completions", r.key, []any{1}, nil, http.StatusBadRequest},
		{"/chat/completions", r.key, map[string]any{"model": strings.Repeat("x", 70000)}, nil, http.StatusRequestEntityTooLarge},
		{"/chat/completions", r.key, map[string]any{"model": gpt}, []string{"X-Budget-Labels", "route"}, http.StatusBadRequest},
		{"/chat/completions", r.key, map[string]any{"model": gpt}, []string{"X-Budget-Account", "poor"}, http.StatusForbidden},
		{"/chat/completions", "", map[string]any{"model": gpt}, nil, http.StatusUnauthorized},
	} {
		answer, text := post(t, base.openai+bad.path, bad.key, bad.body, bad.header...)
		var fault struct{ Error struct{ Message string } }
		if err := json.Unmarshal(text, &fault); answer.StatusCode != bad.status || err != nil || fault.Error.Message == "" {
			t.Errorf("%s: %d %s, want %d", bad.path, answer.StatusCode, text, bad.status)
		}
	}
	for key, status := range map[string]int{"": 401, "nobody's": 401} {
		request, err := http.NewRequest(http.MethodGet, base.openai+"/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+key)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != status {
			t.Errorf("models with key %q: %d, want %d", key, answer.StatusCode, status)
		}
	}
	if calls := r.Calls(); len(calls) != 0 {
		t.Errorf("%d calls reached the provider: %+v", len(calls), calls)
	}
	c := newClients(t, base, r.key, &http.Client{})
	if page, err := c.openai.Models.List(context.Background()); err != nil || len(page.Data) != len(prices) {
		t.Errorf("models: %v", err)
	}
}

// SDKs that are given the broker's address instead of the proxy's are told so, once.
func TestBrokerInPlaceOfProxy(t *testing.T) {
	r := start(t)
	for _, base := range []bases{basesOf(r.broker), {r.broker.URL + "/v1", r.broker.URL, r.broker.URL}, {r.broker.URL, r.broker.URL, r.broker.URL}} {
		tries := &counting{}
		c := newClients(t, base, r.key, &http.Client{Transport: tries})
		for i, e := range []endpoint{chatPlain, chatStream, responsesPlain, embeddings, messagesPlain, messagesStream, generatePlain, generateStream} {
			_, err := e.call(context.Background(), c, provider.Script{ID: "astray"})
			text := fmt.Sprint(err)
			var told *openai.Error // does not print it
			if errors.As(err, &told) {
				text = told.Message
			}
			if statusOf(err) != http.StatusNotFound || !strings.Contains(text, "the proxy's address as its base URL") || tries.tries != i+1 {
				t.Errorf("%s at %+v: %v after %d tries of all", e.name, base, err, tries.tries)
			}
		}
	}
}
