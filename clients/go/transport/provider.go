package transport

import (
	"context"
	"net/http"
	"strings"

	"github.com/budgetd/budgetd/estimator/answer"
)

type providerKey struct{}

// ForProvider returns a context for calls whose provider is known by other means
// than the host of their URL, as a reverse proxy knows it. A request with it is
// priced by that name, wherever it is sent, and has the layout that the broker
// knows for the name, or OpenAI's for a name that it does not know: of servers
// such as vLLM or LiteLLM the name is the operator's own.
func ForProvider(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, providerKey{}, name)
}

// Recognise says of which kind a call is, as RoundTrip would; ok is false for one
// that is not recognised. It does not look at the body.
func (t *Transport) Recognise(request *http.Request) (endpoint Endpoint, ok bool) {
	found, _ := t.recognise(request)
	if found == nil {
		return Endpoint{}, false
	}
	return *found, true
}

// findFor finds the endpoint of a request to a provider: one of that name, or of the
// host that it goes to, before a general one of the same layout.
func (t *Transport) findFor(provider, host string, segments []string) (endpoint *Endpoint, model string) {
	layout := answer.LayoutOrOpenAI(provider)
	for i := range t.endpoints {
		e := &t.endpoints[i]
		if e.layout() != layout {
			continue
		}
		special := strings.EqualFold(e.Provider, provider) || e.Host != "" && e.matchHost(host)
		if !special && (e.Host != "" || endpoint != nil) {
			continue
		}
		if name, ok := e.matchPath(segments); ok {
			of := *e
			of.Provider = provider
			endpoint, model = &of, name
			if special {
				break
			}
		}
	}
	return endpoint, model
}

// usageFormat is the name by which the broker reads the usage objects of the
// endpoint's provider.
func (e *Endpoint) usageFormat() string {
	if _, ok := answer.LayoutOf(e.Provider); ok {
		return e.Provider
	}
	return string(answer.OpenAI)
}
