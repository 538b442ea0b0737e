package sdks

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/budgetd/budgetd/test/provider"
)

const providerKey = "provider-key-0123456789"

// startProvider starts the provider, and returns the base URLs of the SDKs for it.
func startProvider(t testing.TB) (*provider.Provider, bases) {
	t.Helper()
	p := provider.New(providerKey, prices)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	return p, bases{openai: server.URL + "/v1", anthropic: server.URL, gemini: server.URL}
}

// The SDKs alone understand the provider: what the other tests find is then of
// what stands between.
func TestDirect(t *testing.T) {
	p, base := startProvider(t)
	c := newClients(t, base, providerKey, &http.Client{})
	for _, s := range scenarios() {
		t.Run(s.name(), func(t *testing.T) { s.run(t, c, p) })
	}
}

// A key that the provider does not know is refused, once.
func TestDirectWrongKey(t *testing.T) {
	p, base := startProvider(t)
	c := newClients(t, base, "another key", &http.Client{})
	for _, e := range []endpoint{chatPlain, responseStream, embeddings, messagesStream, generatePlain} {
		if _, err := e.call(context.Background(), c, provider.Script{ID: e.name}); statusOf(err) != http.StatusUnauthorized {
			t.Errorf("%s: %v", e.name, err)
		}
	}
	if calls := p.Calls(); len(calls) != 5 {
		t.Errorf("%d calls arrived, want one of each", len(calls))
	}
}
