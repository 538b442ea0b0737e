package proxy

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/clients/go/transport"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
)

var (
	budgetKeyA = "bk_aaaaaaaaaaaaaaaa_" + strings.Repeat("a", 47)
	budgetKeyB = "bk_bbbbbbbbbbbbbbbb_" + strings.Repeat("2", 47)
)

const ownKey = "sk-proj-of-the-caller"

// The broker sees nothing but budget keys, and a provider none of them, wherever
// they stand.
func TestWhoSeesWhichKey(t *testing.T) {
	held := map[string]config.Secret{openAI: config.NewSecret("sk-held"), "azure": config.NewSecret("sk-held"), gemini: config.NewSecret("AIza-held")}
	p := proxyOf(t, held, "openai=https://a.test", "azure=https://b.test", "gemini=https://c.test", "anthropic=https://d.test")
	const chat, messages, generate = "/openai/v1/chat/completions", "/anthropic/v1/messages", "/gemini/v1beta/models/g:generateContent"
	for _, example := range []struct {
		path   string
		header []string // name, value
		key    string   // that pays
		fault  string   // what a refusal says
	}{
		// The proxy holds the key: the SDK sends the budget's.
		{chat, []string{"Authorization", "Bearer " + budgetKeyA}, budgetKeyA, ""},
		{chat, []string{"authorization", "bearer  " + budgetKeyA}, budgetKeyA, ""},
		{chat, []string{"Authorization", "Bearer demo"}, "demo", ""},
		{chat, []string{"X-Budget-Key", budgetKeyA}, budgetKeyA, ""},
		{chat, []string{"X-Budget-Key", budgetKeyA, "Authorization", "Bearer " + ownKey}, budgetKeyA, ""},
		{chat, []string{"X-Api-Key", ownKey, "Authorization", "Bearer " + budgetKeyA}, budgetKeyA, ""},
		{chat, []string{"Authorization", "Bearer " + ownKey, "Authorization", "Bearer " + budgetKeyA}, budgetKeyA, ""},
		{chat, []string{"Api-Key", budgetKeyA, "Authorization", "Bearer " + budgetKeyA}, budgetKeyA, ""},
		{generate, []string{"X-Goog-Api-Key", budgetKeyA}, budgetKeyA, ""},
		{generate + "?alt=sse&key=" + budgetKeyA, nil, budgetKeyA, ""},
		{chat, nil, "", "no budget key was sent: send it where the SDK sends its API key"},
		{chat, []string{"Authorization", "Bearer "}, "", "no budget key was sent"},
		{chat, []string{"Authorization", "Bearer " + ownKey}, "", "send your budget key in its place"},
		{chat, []string{"Authorization", ownKey}, "", "send your budget key in its place"},
		{chat, []string{"Authorization", "Basic c2stcHJvag=="}, "", "send your budget key in its place"},
		{chat, []string{"X-Api-Key", "sk-ant-own"}, "", "send your budget key in its place"},
		{generate + "?key=AIzaOwn", nil, "", "send your budget key in its place"},
		{generate + "?%6bey=AIzaOwn", nil, "", "send your budget key in its place"},
		{generate, []string{"Authorization", "Bearer ya29.own"}, "", "send your budget key in its place"},
		{chat, []string{"X-Budget-Key", ownKey}, "", "no budget key, which begin with bk_"},
		{chat, []string{"X-Budget-Key", "Bearer " + budgetKeyA}, "", "no budget key, which begin with bk_"},
		{chat, []string{"X-Budget-Key", budgetKeyA, "X-Budget-Key", budgetKeyB}, "", "several headers"},
		{chat, []string{"Authorization", "Bearer " + budgetKeyA, "X-Api-Key", budgetKeyB}, "", "several budget keys"},
		{chat, []string{"Authorization", "Bearer " + budgetKeyA[:60]}, "", "not whole"},
		{chat, []string{"Authorization", "Bearer " + budgetKeyA + "x"}, "", "not whole"},
		{chat, []string{"Authorization", "Bearer " + strings.ToUpper(budgetKeyA)}, "", "send your budget key in its place"},
		// The caller's own key goes through.
		{messages, []string{"X-Api-Key", "sk-ant-own", "X-Budget-Key", budgetKeyA}, budgetKeyA, ""},
		{messages, []string{"X-Api-Key", "sk-ant-own"}, "", "send it in X-Budget-Key, and your own key of anthropic where the SDK sends it: this proxy holds none"},
		{messages, []string{"X-Api-Key", budgetKeyA}, "", "this proxy holds none"},
		{messages, []string{"X-Api-Key", "demo"}, "", "this proxy holds none"},
		{messages, []string{"X-Api-Key", budgetKeyA[:30]}, "", "passed on to anthropic"},
		{messages, []string{"X-Api-Key", budgetKeyA, "X-Budget-Key", budgetKeyA}, "", "passed on to anthropic"},
		{messages, []string{"X-Api-Key", "sk-ant-own", "X-Api-Key", budgetKeyA, "X-Budget-Key", budgetKeyA}, "", "passed on to anthropic"},
		{messages, []string{"X-Api-Key", "sk-ant-own", "Authorization", "Bearer " + budgetKeyA, "X-Budget-Key", budgetKeyA}, "", "passed on to anthropic"},
		{messages, []string{"X-Goog-Api-Key", budgetKeyA, "X-Budget-Key", budgetKeyA}, "", "passed on to anthropic"},
		{messages + "?key=" + budgetKeyA, []string{"X-Budget-Key", budgetKeyA}, "", "passed on to anthropic"},
		// Where no key belongs.
		{chat, []string{"X-Budget-Key", budgetKeyA, "Cookie", "k=" + budgetKeyB}, "", "passed on to openai"},
		{chat, []string{"X-Budget-Key", budgetKeyA, "X-Anything", budgetKeyB}, "", "passed on to openai"},
		{chat + "?note=" + budgetKeyB, []string{"X-Budget-Key", budgetKeyA}, "", "passed on to openai"},
		{chat + "?note=%62k_bbbbbbbbbbbbbbbb_" + strings.Repeat("2", 47), []string{"X-Budget-Key", budgetKeyA}, "", "passed on to openai"},
		{"/gemini/v1beta/models/" + budgetKeyB + ":generateContent", []string{"X-Budget-Key", budgetKeyA}, "", "passed on to gemini"},
	} {
		r := httptest.NewRequest(http.MethodPost, example.path, nil)
		for i := 0; i < len(example.header); i += 2 {
			r.Header.Add(example.header[i], example.header[i+1])
		}
		to, fault := p.routeOf(r)
		if fault != nil {
			t.Fatal(fault.Message)
		}
		key, fault := p.budgetKey(r, to)
		if example.fault != "" {
			if fault == nil || fault.Kind != transport.FaultUnauthorized || !strings.Contains(fault.Message, example.fault) {
				t.Errorf("%s %v: %+v, want %q", example.path, example.header, fault, example.fault)
			} else if strings.Contains(fault.Message, budgetKeyA) || strings.Contains(fault.Message, "own") && strings.Contains(fault.Message, "sk-") {
				t.Errorf("the refusal has a key: %s", fault.Message)
			}
			continue
		}
		if fault != nil || key != example.key {
			t.Errorf("%s %v: %q, %+v", example.path, example.header, key, fault)
			continue
		}
		u := *to.url
		if p.showKeys(r.Header, &u, to.provider); strings.Contains(u.String(), budgetKeyA) {
			t.Errorf("the provider sees %s", &u)
		}
		for name, values := range r.Header {
			if text := strings.Join(values, " "); strings.Contains(text, budgetKeyA) || p.config.ProviderKeys[to.provider].IsSet() && strings.Contains(text, ownKey) {
				t.Errorf("%s %v: the provider sees %s: %s", example.path, example.header, name, text)
			}
		}
	}
}

// The provider is shown the key that the proxy holds, where it looks for one.
func TestShowsHeldKey(t *testing.T) {
	held := config.NewSecret("held")
	p := proxyOf(t, map[string]config.Secret{"openai": held, "azure": held, "gemini": held, "anthropic": held, "llama": held},
		"openai=https://a.test", "azure=https://b.test", "gemini=https://c.test", "anthropic=https://d.test", "llama=http://e.test")
	for provider, at := range map[string]string{
		"openai": "Authorization", "azure": "Api-Key", "gemini": "X-Goog-Api-Key", "anthropic": "X-Api-Key", "llama": "Authorization",
	} {
		header := http.Header{"X-Budget-Labels": {"a=b"}}
		for _, name := range credentialHeaders {
			header[name] = []string{"one", "two"}
		}
		u := &url.URL{RawQuery: "key=x&alt=sse&access_token=y&api%5Fkey=z"}
		p.showKeys(header, u, provider)
		if got := strings.TrimPrefix(header.Get(at), "Bearer "); got != "held" || len(header) != 1 || len(header[at]) != 1 || u.RawQuery != "alt=sse" {
			t.Errorf("%s: %v ?%s", provider, header, u.RawQuery)
		}
	}
}
