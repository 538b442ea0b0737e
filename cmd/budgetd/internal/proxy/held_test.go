package proxy

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/test/provider"
)

const geminiPath = "/gemini/v1beta/models/gemini-2.5-flash:generateContent"

// A provider that refuses the key that the proxy holds says nothing about the
// caller's: SDKs see an error of a server, and the log has one line of it, without
// the key. Nothing is charged.
func TestHeldKeyIsRefused(t *testing.T) {
	r := newRig(t)
	r.config.ProviderKeys[gemini] = r.config.ProviderKeys[openAI]
	r.begin()
	const invalid = `{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}`
	for _, c := range []struct {
		path, body  string
		status      int    // of the provider
		answer      string // of it
		want        int
		shape, told string // of what the caller sees; x-budget-error
	}{
		{chatPath, chat, 401, `{"error":{"message":"Incorrect API key provided"}}`, 502, `"code":"provider_key_refused"`, "provider_key_refused"},
		{"/anthropic/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":5,"messages":[{"role":"user","content":"Hello"}]}`, 401, `{}`, 502, `"type":"api_error"`, "provider_key_refused"},
		{geminiPath, `{"contents":[{"parts":[{"text":"Hello"}]}]}`, 400, invalid, 502, `"status":"INTERNAL"`, "provider_key_refused"},
		{geminiPath, `{"contents":[{"parts":[{"text":"Hello"}]}]}`, 400, `{"error":{"code":400,"message":"bad"}}`, 400, `"message":"bad"`, ""},
		{chatPath, chat, 403, `{"error":{"message":"no access to the model"}}`, 403, "no access to the model", "provider_denied"},
		{chatPath, chat, 429, `{"error":{"message":"slow down"}}`, 429, "slow down", ""},
	} {
		r.serveAs(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.answer))
		}))
		a, text := r.call(c.path, c.body, provider.Script{})
		if a.StatusCode != c.want || !strings.Contains(text, c.shape) || a.Header.Get("X-Budget-Error") != c.told {
			t.Errorf("%s answers %d: %d %v %s", c.path, c.status, a.StatusCode, a.Header, text)
		}
		if c.want == 502 && (a.Header.Get("X-Should-Retry") != "false" || !strings.Contains(text, "nothing is wrong with your budget key")) {
			t.Errorf("%s: %v %s", c.path, a.Header, text)
		}
	}
	if used := r.used(); used != 0 {
		t.Errorf("%d tokens are charged", used)
	}
	log := r.log.String()
	if strings.Count(log, "refuses the key that this proxy holds") != 3 || strings.Contains(log, providerKey) {
		t.Errorf("the log is\n%s", log)
	}
}

// The caller's own key is between the caller and the provider.
func TestOwnKeyIsRefused(t *testing.T) {
	r := newRig(t)
	delete(r.config.ProviderKeys, openAI)
	r.begin()
	request := r.request(t.Context(), chatPath, chat, provider.Script{})
	request.Header.Set("Authorization", "Bearer sk-wrong")
	request.Header.Set("X-Budget-Key", budgetKey)
	a, err := r.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if text := read(t, a); a.StatusCode != http.StatusUnauthorized || a.Header.Get("X-Budget-Error") != "" || !strings.Contains(text, "the key is not valid") {
		t.Errorf("%d %v %s", a.StatusCode, a.Header, text)
	}
	if log := r.log.String(); strings.Contains(log, "refuses the key") {
		t.Errorf("the log is\n%s", log)
	}
}

// An upstream that goes on refusing does not fill the log.
func TestHeldKeyIsToldOnceAMinute(t *testing.T) {
	h, now := &heldRefused{}, time.Unix(1_800_000_000, 0)
	for i, want := range []int{0, -1, -1, 2, -1, 1} { // how many were not told; -1: it is not either
		if i == 3 || i == 5 {
			now = now.Add(heldAgain)
		}
		if yes, untold := h.tell("openai", now); yes != (want >= 0) || yes && untold != want {
			t.Errorf("%d: %v, %d", i, yes, untold)
		}
	}
	if yes, _ := h.tell("gemini", now); !yes {
		t.Error("another upstream is not told")
	}
}
