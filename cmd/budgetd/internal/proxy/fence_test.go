package proxy

import (
	"net/http"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/test/provider"
)

const geminiChat = `{"contents":[{"parts":[{"text":"Hello"}]}]}`

// A caller does not choose which limits see its call, nor what its answer tells.
func TestCallersDoNotChooseTheirLimits(t *testing.T) {
	r := start(t)
	r.serveAs(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a call went on") }))
	for _, c := range []struct {
		path, body string
		header     [][2]string
		want       string
	}{
		{chatPath, chat, [][2]string{{"X-Budget-Labels", "route=chat, model=gpt-3"}}, "states model"},
		{chatPath, chat, [][2]string{{"X-Budget-Labels", "provider=zzz"}}, "states provider"},
		{chatPath, chat, [][2]string{{"X-Budget-Labels", "route=a"}, {"X-Budget-Labels", "route=b"}}, "several headers X-Budget-Labels"},
		{chatPath, chat, [][2]string{{"X-Budget-Account", "demo"}, {"X-Budget-Account", "other"}}, "several headers X-Budget-Account"},
		{geminiPath + "?fields=candidates.content", geminiChat, [][2]string{{"X-Budget-Key", budgetKey}}, "the parameter fields"},
		{geminiPath + "?%24fields=candidates.content", geminiChat, [][2]string{{"X-Budget-Key", budgetKey}}, "the parameter $fields"},
		{geminiPath, geminiChat, [][2]string{{"X-Budget-Key", budgetKey}, {"X-Goog-FieldMask", "candidates"}}, "the header X-Goog-FieldMask"},
	} {
		request := r.request(t.Context(), c.path, c.body, provider.Script{})
		if strings.HasPrefix(c.path, "/gemini") {
			request.Header.Del("Authorization")
		}
		for _, h := range c.header {
			request.Header.Add(h[0], h[1])
		}
		a, err := r.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if text := read(t, a); a.StatusCode != http.StatusBadRequest || !strings.Contains(text, c.want) {
			t.Errorf("%s %v: %d %s", c.path, c.header, a.StatusCode, text)
		}
	}
	if used := r.used(); used != 0 {
		t.Errorf("%d tokens are charged", used)
	}
}

// Only the proxy speaks of budgets: what an upstream says of them is left out, and
// believed by nobody.
func TestUpstreamsDoNotSpeakOfBudgets(t *testing.T) {
	r := start(t)
	status := http.StatusForbidden
	r.serveAs(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range map[string]string{"Error": "unauthenticated", "Reason": "quota_exhausted", "Remaining": "0", "Charged": "tokens=0", "Reservation": "fake", "Invented": "1"} {
			w.Header().Set("X-Budget-"+name, value)
			w.Header().Set(http.TrailerPrefix+"X-Budget-"+name, value)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"error":{"message":"no access to the model"},"usage":{"prompt_tokens":8,"completion_tokens":2,"total_tokens":10}}`))
	}))
	for _, status = range []int{http.StatusForbidden, http.StatusTooManyRequests, http.StatusOK} {
		a, text := r.call(chatPath, chat, provider.Script{})
		if a.StatusCode != status || !strings.Contains(text, "no access to the model") {
			t.Errorf("%d is answered as %d: %s", status, a.StatusCode, text)
		}
		for _, header := range []http.Header{a.Header, a.Trailer} {
			for name, values := range header {
				if strings.HasPrefix(name, "X-Budget-") && (strings.HasSuffix(name, "Invented") || strings.HasSuffix(name, "Remaining") || strings.HasSuffix(name, "Reason") ||
					values[0] == "unauthenticated" || values[0] == "fake" || values[0] == "tokens=0") {
					t.Errorf("%d: the caller sees %s: %v", status, name, values)
				}
			}
		}
	}
	// The key is still one, also for whom the broker is away.
	r.gate.closed.Store(true)
	if a, text := r.call(chatPath, chat, provider.Script{}); a.StatusCode == http.StatusUnauthorized {
		t.Errorf("the key is taken for unknown: %s", text)
	}
}
