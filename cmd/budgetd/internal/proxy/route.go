package proxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The providers whose layouts have paths of their own. Every other upstream
// speaks OpenAI's.
const (
	openAI    = "openai"
	anthropic = "anthropic"
	gemini    = "gemini"
)

// route is where a call goes.
type route struct {
	provider string   // name of the upstream
	url      *url.URL // of the call there
}

// routeOf reads the path: "/name/..." is for the upstream of that name, and a
// path as SDKs add it to their base URL for the provider that has such paths.
// The second result is false when it is for no upstream.
func (p *Proxy) routeOf(r *http.Request) (route, bool) {
	escaped := r.URL.EscapedPath()
	if name, rest, ok := strings.Cut(strings.TrimPrefix(escaped, "/"), "/"); ok {
		if base := p.config.Upstreams[name]; base != nil {
			return p.to(name, base, "/"+rest, r.URL.RawQuery)
		}
	}
	name := bareProvider(r, escaped)
	base := p.config.Upstreams[name]
	if base == nil {
		return route{provider: name}, false
	}
	return p.to(name, base, escaped, r.URL.RawQuery)
}

// bareProvider is whose SDK makes calls of such a path: with /v1beta it is
// Gemini's, and with /v1 the headers that Anthropic's and Gemini's SDKs always
// send tell.
func bareProvider(r *http.Request, path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case first == "v1beta" || first == "v1alpha":
		return gemini
	case first == "v1" && (rest == "messages" || strings.HasPrefix(rest, "messages/") || r.Header.Get("Anthropic-Version") != ""):
		return anthropic
	case first == "v1" && r.Header.Get("X-Goog-Api-Key") != "":
		return gemini
	}
	return openAI
}

func (p *Proxy) to(name string, base *url.URL, path, query string) (route, bool) {
	plain, err := url.PathUnescape(path)
	if err != nil || slices.Contains(strings.Split(plain, "/"), "..") {
		return route{provider: name}, false
	}
	u := *base
	u.Path, u.RawPath, u.RawQuery = base.Path+plain, base.EscapedPath()+path, query
	return route{provider: name, url: &u}, true
}

// free says whether a call costs nothing at a provider, and is forwarded without
// a reservation: lists of models, and counts of tokens.
func free(method, path string) bool {
	segments := strings.Split(path, "/")
	switch method {
	case http.MethodGet, http.MethodHead:
		return slices.Contains(segments, "models")
	case http.MethodPost:
		last := segments[len(segments)-1]
		return last == "count_tokens" || strings.HasSuffix(last, ":countTokens")
	}
	return false
}
