package proxy

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/budgetd/budgetd/clients/go/transport"
	"github.com/budgetd/budgetd/estimator/answer"
)

// The providers that are known without being named. Every other upstream has the
// layout of its name, or OpenAI's.
const (
	openAI    = "openai"
	anthropic = "anthropic"
	gemini    = "gemini"
)

// route is where a call goes.
type route struct {
	provider string   // name of the upstream
	url      *url.URL // of the call there
	free     bool     // costs nothing: not to be reserved
}

// routeOf reads the path: "/name/..." is for the upstream of that name, and a path
// that SDKs add to a base URL for the provider that has such paths. Only calls that
// are known go on. For every other the second result says why not, and the route
// has the provider whose error shape fits.
func (p *Proxy) routeOf(r *http.Request) (route, *transport.Fault) {
	segments, ok := segmentsOf(r.URL)
	name := segments[0]
	base, named := p.config.Upstreams[name]
	if !ok || named && len(segments) == 1 {
		if !named {
			name = bareProvider(r, segments)
		}
		return route{provider: name}, p.notFound(r)
	}
	if named {
		segments = segments[1:]
	} else if name = bareProvider(r, segments); p.config.Upstreams[name] != nil {
		base = p.config.Upstreams[name]
	} else {
		return route{provider: name}, p.notFound(r)
	}
	path := "/" + strings.Join(segments, "/")
	to := route{provider: name, url: joined(base, path, r.URL.RawQuery)}
	// Under a base with a path of its own the rest is the operator's: what comes
	// before a call's own segments is then not looked at.
	exact := !named || base.Path == ""
	switch {
	case p.budgets(r, to, segments, exact):
		return to, nil
	case isFree(r.Method, name, segments, exact, base):
		to.free = true
		return to, nil
	case !named || p.nearest(r) != "":
		return to, p.notFound(r)
	}
	return to, notForwarded(r)
}

// segmentsOf are the segments of a path as they are written. ok is false for a
// path with segments that are empty or lead elsewhere, which servers read in
// different ways.
func segmentsOf(u *url.URL) (segments []string, ok bool) {
	segments = strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	for _, segment := range segments {
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == "" || strings.ContainsAny(plain, "\\\x00") {
			return segments, false
		}
		for part := range strings.SplitSeq(plain, "/") {
			if part == "" || part == "." || part == ".." {
				return segments, false
			}
		}
	}
	return segments, true
}

// bareProvider is whose SDK makes calls of such a path: with /v1beta it is
// Gemini's, and with /v1 the headers that Anthropic's and Gemini's SDKs always
// send tell.
func bareProvider(r *http.Request, segments []string) string {
	switch {
	case segments[0] == "v1beta" || segments[0] == "v1alpha" || strings.Contains(segments[len(segments)-1], ":") || r.Header.Get(headerGoogleKey) != "":
		return gemini
	case slices.Contains(segments, "messages") || r.Header.Get("Anthropic-Version") != "":
		return anthropic
	}
	return openAI
}

// joined is the URL of a path under an upstream's. A version that ends the one and
// begins the other, as vendors print their URLs and SDKs make their paths, is meant
// once.
func joined(base *url.URL, path, query string) *url.URL {
	if i := strings.LastIndex(base.Path, "/"); i >= 0 && version.MatchString(base.Path[i+1:]) {
		if rest, doubled := strings.CutPrefix(path, base.Path[i:]+"/"); doubled {
			path = "/" + rest
		}
	}
	plain, err := url.PathUnescape(path)
	if err != nil {
		plain = path // segmentsOf has looked
	}
	u := *base
	u.Path, u.RawPath, u.RawQuery = base.Path+plain, base.EscapedPath()+path, query
	return &u
}

// budgets says whether the Transport knows what a call costs, and its path is
// spelled as the provider has it.
func (p *Proxy) budgets(r *http.Request, to route, segments []string, exact bool) bool {
	request := (&http.Request{Method: r.Method, URL: to.url}).WithContext(transport.ForProvider(r.Context(), to.provider))
	endpoint, ok := p.budgeted.Recognise(request)
	if !ok {
		return false
	}
	// What the upstream's own path has of it is the operator's spelling.
	pattern := strings.Split(strings.TrimPrefix(endpoint.Path, "/"), "/")
	pattern = pattern[max(len(pattern)-len(segments), 0):]
	before := segments[:len(segments)-len(pattern)]
	for i, want := range pattern {
		have, err := url.PathUnescape(segments[len(before)+i])
		if rest, model := strings.CutPrefix(want, "{model}"); err != nil || model && !strings.HasSuffix(have, rest) || !model && have != want {
			return false
		}
	}
	return !exact || isVersion(to.provider, before, pattern[0])
}

// isVersion says whether what stands before a call's own segments, of which first
// is the first, is the version of the provider's API.
func isVersion(provider string, before []string, first string) bool {
	switch provider {
	case openAI, anthropic:
		if first == "v1" {
			return len(before) == 0
		}
		return len(before) == 1 && before[0] == "v1"
	case gemini:
		return len(before) == 1 && slices.Contains([]string{"v1", "v1beta", "v1alpha"}, before[0])
	}
	return true
}

// version matches the version of an API in a path.
var version = regexp.MustCompile(`^v[0-9]+(alpha|beta)?[0-9]*$`)

// isFree says whether a call costs nothing at its provider, and is forwarded
// without a reservation: lists of models, and counts of tokens.
func isFree(method, provider string, segments []string, exact bool, base *url.URL) bool {
	n := len(segments)
	last := segments[n-1]
	layout := answer.LayoutOrOpenAI(provider)
	versioned := func(before []string, first string) bool {
		if exact && standard(provider) {
			return isVersion(provider, before, first)
		}
		whole := slices.Concat(strings.FieldsFunc(base.Path, func(r rune) bool { return r == '/' }), before)
		return len(whole) == 0 || version.MatchString(whole[len(whole)-1])
	}
	switch method {
	case http.MethodGet, http.MethodHead:
		if last == "models" {
			return versioned(segments[:n-1], last)
		}
		return n >= 2 && segments[n-2] == "models" && (layout != answer.Gemini || !strings.ContainsAny(plainly(last), ":/?#%")) && versioned(segments[:n-2], "models")
	case http.MethodPost:
		switch layout {
		case answer.Anthropic:
			return n >= 3 && last == "count_tokens" && segments[n-2] == "messages" && segments[n-3] == "v1" && (n == 3 || !exact)
		case answer.Gemini:
			model, counts := strings.CutSuffix(last, ":countTokens")
			return counts && model != "" && !strings.ContainsAny(plainly(model), ":/?#%") && n >= 2 && segments[n-2] == "models" && versioned(segments[:n-2], "models")
		}
	}
	return false
}

// plainly is a segment without its escapes.
func plainly(segment string) string {
	plain, err := url.PathUnescape(segment)
	if err != nil {
		return "%" // segmentsOf has looked
	}
	return plain
}

func standard(provider string) bool {
	return provider == openAI || provider == anthropic || provider == gemini
}
