package proxy

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/clients/go/transport"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
)

// proxyOf is a proxy with upstreams, by name=URL, that nobody calls.
func proxyOf(t *testing.T, keys map[string]config.Secret, upstreams ...string) *Proxy {
	t.Helper()
	c := config.Proxy{Broker: "http://127.0.0.1:1", MaxRequestBytes: 1 << 20, MaxInFlight: 16, Upstreams: map[string]*url.URL{}, ProviderKeys: keys}
	for _, pair := range upstreams {
		name, address, _ := strings.Cut(pair, "=")
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		c.Upstreams[name] = u
	}
	p, err := New(c, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var standardUpstreams = []string{
	"openai=https://openai.test", "anthropic=https://anthropic.test", "gemini=https://gemini.test",
	"groq=https://shared.test/openai", "llama-a=http://shared.test:8000", "llama-b=http://shared.test:8000/b/v1", "my-azure=https://x.openai.azure.com",
}

// Calls that are known go where their path says.
func TestRoutes(t *testing.T) {
	p := proxyOf(t, nil, standardUpstreams...)
	for _, example := range []struct {
		method, path, header, provider, url string
		free                                bool
	}{
		{"POST", "/openai/v1/chat/completions?x=1", "", "openai", "https://openai.test/v1/chat/completions?x=1", false},
		{"POST", "/openai/v1/responses", "", "openai", "https://openai.test/v1/responses", false},
		{"POST", "/openai/v1/completions", "", "openai", "https://openai.test/v1/completions", false},
		{"POST", "/openai/v1/embeddings", "", "openai", "https://openai.test/v1/embeddings", false},
		{"GET", "/openai/v1/models", "", "openai", "https://openai.test/v1/models", true},
		{"HEAD", "/openai/v1/models/ft:gpt-4o:mine::1", "", "openai", "https://openai.test/v1/models/ft:gpt-4o:mine::1", true},
		{"POST", "/my-azure/openai/deployments/my%2Fgpt/chat/completions", "", "my-azure", "https://x.openai.azure.com/openai/deployments/my%2Fgpt/chat/completions", false},
		{"POST", "/anthropic/v1/messages", "", "anthropic", "https://anthropic.test/v1/messages", false},
		{"POST", "/anthropic/v1/messages/count_tokens", "", "anthropic", "https://anthropic.test/v1/messages/count_tokens", true},
		{"GET", "/anthropic/v1/models/claude", "", "anthropic", "https://anthropic.test/v1/models/claude", true},
		{"POST", "/gemini/v1beta/models/g:streamGenerateContent?alt=sse", "", "gemini", "https://gemini.test/v1beta/models/g:streamGenerateContent?alt=sse", false},
		{"POST", "/gemini/v1/models/g:countTokens", "", "gemini", "https://gemini.test/v1/models/g:countTokens", true},
		{"GET", "/gemini/v1beta/models", "", "gemini", "https://gemini.test/v1beta/models", true},
		{"POST", "/groq/v1/chat/completions", "", "groq", "https://shared.test/openai/v1/chat/completions", false},
		{"POST", "/llama-a/v1/chat/completions", "", "llama-a", "http://shared.test:8000/v1/chat/completions", false},
		{"POST", "/llama-b/chat/completions", "", "llama-b", "http://shared.test:8000/b/v1/chat/completions", false},
		{"POST", "/llama-b/completions", "", "llama-b", "http://shared.test:8000/b/v1/completions", false},
		{"POST", "/llama-b/v1/chat/completions", "", "llama-b", "http://shared.test:8000/b/v1/chat/completions", false}, // as vendors print it
		{"GET", "/llama-b/v1/models/m", "", "llama-b", "http://shared.test:8000/b/v1/models/m", true},
		{"GET", "/llama-b/models", "", "llama-b", "http://shared.test:8000/b/v1/models", true},
		// As SDKs add them to a base URL without a name.
		{"POST", "/v1/chat/completions", "", "openai", "https://openai.test/v1/chat/completions", false},
		{"GET", "/v1/models", "", "openai", "https://openai.test/v1/models", true},
		{"GET", "/v1/models", "Anthropic-Version", "anthropic", "https://anthropic.test/v1/models", true},
		{"GET", "/v1/models", "X-Goog-Api-Key", "gemini", "https://gemini.test/v1/models", true},
		{"POST", "/v1/messages", "", "anthropic", "https://anthropic.test/v1/messages", false},
		{"POST", "/v1beta/models/g:generateContent", "", "gemini", "https://gemini.test/v1beta/models/g:generateContent", false},
		{"POST", "/v1/models/g:generateContent", "", "gemini", "https://gemini.test/v1/models/g:generateContent", false},
	} {
		r := httptest.NewRequest(example.method, example.path, nil)
		if example.header != "" {
			r.Header.Set(example.header, "x")
		}
		to, fault := p.routeOf(r)
		if fault != nil {
			t.Errorf("%s %s: %s", example.method, example.path, fault.Message)
		} else if to.provider != example.provider || to.url.String() != example.url || to.free != example.free {
			t.Errorf("%s %s: %s, %s, free %v", example.method, example.path, to.provider, to.url, to.free)
		}
	}
}

// Every other path goes nowhere, and is told where it may have meant to go.
func TestNoRoutes(t *testing.T) {
	p := proxyOf(t, nil, standardUpstreams...)
	const bases = "/anthropic, /gemini, /groq/v1, /llama-a/v1, /llama-b, /my-azure/v1, /openai/v1"
	for _, example := range []struct {
		method, path, provider, want string
	}{
		// No version, a misspelt one, or two.
		{"POST", "/chat/completions", openAI, "/v1/chat/completions"},
		{"POST", "/openai/chat/completions", openAI, "/openai/v1/chat/completions"},
		{"POST", "/openai/v2/chat/completions", openAI, "/openai/v1/chat/completions"},
		{"POST", "/openai/v1/v1/chat/completions", openAI, "/openai/v1/chat/completions"},
		{"POST", "/v1/v1/messages", anthropic, "/v1/messages"},
		{"POST", "/anthropic/v1/v1/messages", anthropic, "/anthropic/v1/messages"},
		{"POST", "/anthropic/messages", anthropic, "/anthropic/v1/messages"},
		{"POST", "/gemini/models/g:generateContent", gemini, "/gemini/v1beta/models/g:generateContent"},
		{"POST", "/gemini/v1beta/v1beta/models/g:generateContent", gemini, "/gemini/v1beta/models/g:generateContent"},
		{"POST", "/gemini/v1beta/models/g:generatContent", gemini, "/gemini/v1beta/models/g:generateContent"},
		{"POST", "/v1/openai/chat/completions", openAI, "/openai/v1/chat/completions"},
		// Misspelt names and calls.
		{"POST", "/opnai/v1/chat/completions", openAI, "/openai/v1/chat/completions"},
		{"POST", "/antropic/v1/messages", anthropic, "/anthropic/v1/messages"},
		{"POST", "/openai/v1/chat/completion", openAI, "/openai/v1/chat/completions"},
		{"POST", "/openai/v1/embedding", openAI, "/openai/v1/embeddings"},
		{"GET", "/v1/model", openAI, "/v1/models"},
		// Slashes and case.
		{"POST", "/openai/v1/chat/completions/", openAI, "/openai/v1/chat/completions"},
		{"POST", "/openai//v1/chat/completions", openAI, "/openai/v1/chat/completions"},
		{"POST", "//openai/v1/chat/completions", openAI, "/openai/v1/chat/completions"},
		{"POST", "/OpenAI/v1/chat/completions", openAI, "/openai/v1/chat/completions"},
		{"POST", "/openai/V1/Chat/Completions", openAI, "/openai/v1/chat/completions"},
		{"POST", "/llama-b/Chat/Completions", "llama-b", "/llama-b/chat/completions"},
		// Another method.
		{"GET", "/openai/v1/chat/completions", openAI, "this path takes another method"},
		{"POST", "/openai/v1/models", openAI, "this path takes another method"},
		// Nothing near.
		{"GET", "/", openAI, bases}, {"GET", "/openai", openAI, bases}, {"GET", "/openai/", openAI, bases},
		{"POST", "/unknown/v1/something", openAI, bases},
		{"POST", "/v1/images/generations", openAI, bases},
		{"GET", "/v1/files/models/content", openAI, bases},
		{"GET", "/favicon.ico", openAI, bases},
		{"POST", "/" + strings.Repeat("x", 5000), openAI, bases},
		{"POST", "/openai/v1/../v1/chat/completions", openAI, bases},
		{"POST", "/openai/%2e%2e/v1/chat/completions", openAI, bases},
		{"POST", "/openai/v1/chat%2Fcompletions", openAI, "/openai/v1/chat/completions"},
		{"POST", "/anthropic/v1/models/..%2Fmessages", anthropic, bases},
	} {
		r := httptest.NewRequest(example.method, "/", nil)
		var err error
		if r.URL, err = url.ParseRequestURI(example.path); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(example.path, "//") {
			r.URL = &url.URL{Path: example.path}
		}
		to, fault := p.routeOf(r)
		if fault == nil || fault.Kind != transport.FaultNotFound || to.provider != example.provider {
			t.Errorf("%.80s %s: %+v to %s", example.method, example.path, fault, to.provider)
			continue
		}
		if !strings.Contains(fault.Message, example.want) || !strings.Contains(fault.Message, bases) || len(fault.Message) > 700 {
			t.Errorf("%s %.80s: %s", example.method, example.path, fault.Message)
		}
	}
}

// Calls of a known upstream whose cost nobody knows are refused as such.
func TestNotForwarded(t *testing.T) {
	p := proxyOf(t, nil, standardUpstreams...)
	for _, call := range []string{
		"POST /openai/v1/images/generations", "GET /openai/v1/files", "GET /openai/v1/fine_tuning/models/x/y", "DELETE /openai/v1/models/ft:mine",
		"GET /openai/v1/models/a/b", "GET /openai/v1/files/models", "POST /gemini/v1beta/models/g:embedContent", "GET /gemini/v1beta/models/g:generateContent",
		"POST /groq/v1/audio/speech", "GET /llama-a/files/models/x", "POST /anthropic/v1/messages/batches", "POST /openai/v1/count_tokens",
	} {
		method, path, _ := strings.Cut(call, " ")
		_, fault := p.routeOf(httptest.NewRequest(method, path, nil))
		if fault == nil || fault.Kind != transport.FaultDenied && fault.Kind != transport.FaultNotFound {
			t.Errorf("%s: %+v", call, fault)
		}
	}
}

// What tells of the caller, and what is for one hop, stays here.
func TestWithoutCaller(t *testing.T) {
	header := http.Header{"Content-Type": {"application/json"}, "Anthropic-Version": {"1"}, "X-Stainless-Lang": {"go"}}
	for _, name := range []string{
		"X-Real-IP", "CF-Connecting-IP", "CF-IPCountry", "True-Client-IP", "Forwarded", "X-Forwarded-For", "X-Forwarded-Port", "X-Forwarded-Email",
		"Via", "X-Client-IP", "CDN-Loop", "Connection", "Upgrade", "TE", "CloudFront-Viewer-Address",
	} {
		header.Set(name, "192.0.2.7")
	}
	if withoutCaller(header); len(header) != 3 {
		t.Errorf("%v", header)
	}
}

// The known providers may be stated with the version that their documents print.
func TestVersionIsNotDoubled(t *testing.T) {
	p := proxyOf(t, nil, "openai=https://openai.test/v1", "anthropic=https://anthropic.test/v1", "gemini=https://gemini.test/v1beta")
	for path, want := range map[string]string{
		"/openai/v1/chat/completions":             "https://openai.test/v1/chat/completions",
		"/openai/chat/completions":                "https://openai.test/v1/chat/completions",
		"/openai/v1/completions":                  "https://openai.test/v1/completions",
		"/v1/chat/completions":                    "https://openai.test/v1/chat/completions",
		"/anthropic/v1/messages":                  "https://anthropic.test/v1/messages",
		"/v1/messages":                            "https://anthropic.test/v1/messages",
		"/anthropic/v1/messages/count_tokens":     "https://anthropic.test/v1/messages/count_tokens",
		"/gemini/v1beta/models/g:generateContent": "https://gemini.test/v1beta/models/g:generateContent",
		"/gemini/models/g:generateContent":        "https://gemini.test/v1beta/models/g:generateContent",
	} {
		to, fault := p.routeOf(httptest.NewRequest(http.MethodPost, path, nil))
		if fault != nil || to.url.String() != want {
			t.Errorf("%s: %s, %+v, want %s", path, to.url, fault, want)
		}
	}
}
