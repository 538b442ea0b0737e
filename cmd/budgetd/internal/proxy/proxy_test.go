package proxy

import (
	"net/http"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/test/provider"
)

// Every metric has what was done, and nothing else.
func TestMetrics(t *testing.T) {
	r := start(t)
	script := provider.Script{Tokens: provider.Tokens{Input: 8}}
	for _, body := range []string{chat, stream} {
		if a, text := r.call(chatPath, body, script); a.StatusCode != 200 {
			t.Fatal(a.StatusCode, text)
		}
	}
	script.ID, script.Faults = "fails", []provider.Fault{{Status: 500}}
	r.call(chatPath, chat, script)
	r.call("/openai/v1/images/generations", chat, script)
	if used := r.used(); used != 20 {
		t.Errorf("%d tokens are charged, want 20", used)
	}
	for _, m := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{2, "budgetd_proxy_calls_total", []string{"upstream", "openai", "status", "200"}},
		{1, "budgetd_proxy_calls_total", []string{"upstream", "openai", "status", "500"}},
		{1, "budgetd_proxy_calls_total", []string{"upstream", "openai", "status", "403"}},
		{4, "budgetd_proxy_calls_total", nil},
		{4, "budgetd_proxy_first_byte_seconds", nil},
		{0, "budgetd_proxy_calls_in_flight", nil},
		{0, "budgetd_proxy_refunds_lost_total", nil},
		{0, "budgetd_proxy_refunds_kept_total", nil},
		{1, "budgetd_proxy_broker_up", nil},
		{0, "budgetd_proxy_broker_unanswered_total", nil},
		{0, "budgetd_proxy_calls_unbudgeted_total", nil},
	} {
		if got := r.metric(m.name, m.labels...); got != m.want {
			t.Errorf("%s %v is %v, want %v", m.name, m.labels, got, m.want)
		}
	}
}

// A path is taken as it is written. Nobody is redirected: an SDK that follows would
// send its prompt and key again, and one that does not would see no error.
func TestPathsAreNotRedirected(t *testing.T) {
	r := start(t)
	r.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, path := range []string{"//openai/v1/chat/completions", "/openai//v1/chat/completions", "/openai/./v1/chat/completions", "/x/../openai/v1/chat/completions"} {
		request := r.request(t.Context(), chatPath, chat, provider.Script{})
		request.URL.Path = path
		a, err := r.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if text := read(t, a); a.StatusCode != http.StatusNotFound || !strings.Contains(text, "/openai/v1") {
			t.Errorf("%s: %d %s", path, a.StatusCode, text)
		}
	}
	if calls := r.provider.Calls(); len(calls) != 0 {
		t.Errorf("the provider saw %d calls", len(calls))
	}
}
