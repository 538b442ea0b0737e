package transport_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/clients/go/transport"
)

// TestTextThatIsNotUTF8 is the caller's fault: 400 in each provider's shape, which
// nobody tries again, and not a broker that is silent.
func TestTextThatIsNotUTF8(t *testing.T) {
	const bad = "caf\xe9"
	r := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("a refused call was sent") }, bedrockHere)
	check := func(path, ask, field string) {
		t.Helper()
		response, text := r.call(path, ask)
		if response.StatusCode != 400 || response.Header.Get("X-Should-Retry") != "false" || response.Header.Get("Retry-After") != "" ||
			response.Header.Get("X-Budget-Error") != "invalid_argument" || !strings.Contains(text, field) || !strings.Contains(text, "is not UTF-8") {
			t.Errorf("%s: %s %v %s, want 400 that names the %s", path, response.Status, response.Header, text, field)
		}
	}
	asks := asksFor("10")
	check("/v1beta/models/gemini%ff:generateContent", asks[geminiPath], "model")
	check("/model/anthropic%ff/converse-stream", asks[bedrockPath], "model")
	for field, option := range map[string]transport.Option{
		"account": transport.WithAccount(bad),
		"label":   transport.WithLabels(map[string]string{"team": bad}),
	} {
		r.use(bedrockHere, option)
		for path, ask := range asks {
			check(path, ask, field)
		}
	}
	r.use()
	r.take(0)
}
