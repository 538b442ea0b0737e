package transport

import (
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/budgetd/budgetd/estimator/answer"
)

// Endpoint is a kind of call that a Transport recognises.
type Endpoint struct {
	// Host is a pattern as of path.Match over the host without its port, such as
	// "api.openai.com" or "bedrock-runtime.*.amazonaws.com". Empty: any.
	Host string

	// Path is how the path of the URL ends, by whole segments, in any case:
	// "/chat/completions". Empty segments are not looked at. {model} at the beginning
	// of a segment stands for the name of the model: "/models/{model}:generateContent".
	Path string

	// Provider is whose call it is, as LlmCall.provider of the API names it. It
	// also decides the layout of requests, answers and errors.
	Provider string

	// OutputFields are where the request bounds its output, dots between the names
	// of nested objects. The first is the one to set where none is stated. Empty:
	// the bound is never set.
	OutputFields []string

	// AsksUsage says that streams tell their usage only if the request has
	// stream_options.include_usage.
	AsksUsage bool

	// Signed says that the request is signed as a whole: nothing of it is changed.
	Signed bool
}

// Where requests bound their output.
var (
	chatOutput   = []string{"max_completion_tokens", "max_tokens"}
	olderOutput  = []string{"max_tokens", "max_completion_tokens"}
	geminiOutput = []string{"generationConfig.maxOutputTokens", "generation_config.max_output_tokens"}
)

// Endpoints returns the calls that every Transport recognises, all of them POST.
// The hosts that serve OpenAI's layout are told apart for their prices; any
// other host, such as a gateway's, counts as OpenAI's by the path alone.
func Endpoints() []Endpoint {
	all := []Endpoint{
		{Path: "/openai/deployments/{model}/chat/completions", Provider: "azure", OutputFields: chatOutput, AsksUsage: true},
		{Path: "/openai/deployments/{model}/embeddings", Provider: "azure"},
	}
	for _, host := range []struct {
		name, provider string
		asks           bool // the others tell the usage of a stream unasked
	}{
		{"api.groq.com", "groq", false},
		{"api.mistral.ai", "mistral", false},
		{"api.deepseek.com", "deepseek", true},
		{"api.x.ai", "xai", false},
		{"api.together.xyz", "together_ai", false},
		{"api.fireworks.ai", "fireworks_ai", false},
		{"api.cerebras.ai", "cerebras", false},
		{"openrouter.ai", "openrouter", false},
		{"api.moonshot.ai", "moonshot", true},
	} {
		all = append(all,
			Endpoint{Host: host.name, Path: "/chat/completions", Provider: host.provider, OutputFields: olderOutput, AsksUsage: host.asks},
			Endpoint{Host: host.name, Path: "/embeddings", Provider: host.provider},
		)
	}
	return append(all,
		Endpoint{Path: "/chat/completions", Provider: "openai", OutputFields: chatOutput, AsksUsage: true},
		Endpoint{Path: "/responses", Provider: "openai", OutputFields: []string{"max_output_tokens"}},
		Endpoint{Path: "/v1/completions", Provider: "openai", OutputFields: []string{"max_tokens"}, AsksUsage: true},
		Endpoint{Path: "/embeddings", Provider: "openai"},
		Endpoint{Path: "/v1/messages", Provider: "anthropic", OutputFields: []string{"max_tokens"}},
		Endpoint{Path: "/models/{model}:generateContent", Provider: "gemini", OutputFields: geminiOutput},
		Endpoint{Path: "/models/{model}:streamGenerateContent", Provider: "gemini", OutputFields: geminiOutput},
		Endpoint{Host: "bedrock-runtime*", Path: "/model/{model}/converse", Provider: "bedrock", Signed: true},
		Endpoint{Host: "bedrock-runtime*", Path: "/model/{model}/converse-stream", Provider: "bedrock", Signed: true},
	)
}

const modelSegment = "{model}"

// segmentsOf are the segments of a URL's path, still escaped. Empty ones, as of
// doubled slashes and one at the end, are left out, as many servers do: a call that
// its provider does not take for one is answered with an error and costs nothing,
// and one that is not recognised may have no budget.
func segmentsOf(u *url.URL) []string {
	return strings.FieldsFunc(u.EscapedPath(), func(r rune) bool { return r == '/' })
}

// matchPath says whether a path is of this kind, in any case, and the model that it
// names, as it is written.
func (e *Endpoint) matchPath(segments []string) (model string, ok bool) {
	pattern := strings.Split(strings.TrimPrefix(e.Path, "/"), "/")
	if len(segments) < len(pattern) {
		return "", false
	}
	segments = segments[len(segments)-len(pattern):]
	for i, want := range pattern {
		have, err := url.PathUnescape(segments[i])
		if err != nil {
			return "", false
		}
		if rest, named := strings.CutPrefix(want, modelSegment); named {
			n := len(have) - len(rest)
			if n <= 0 || !strings.EqualFold(have[n:], rest) {
				return "", false
			}
			model = have[:n]
		} else if !strings.EqualFold(have, want) {
			return "", false
		}
	}
	return model, true
}

func (e *Endpoint) layout() answer.Layout { return answer.LayoutOrOpenAI(e.Provider) }

// matchHost says whether a host is of this kind.
func (e *Endpoint) matchHost(host string) bool {
	if e.Host == "" {
		return true
	}
	ok, err := path.Match(e.Host, host)
	return ok && err == nil
}

// recognise finds the first endpoint that a request is of, and the model that its
// path names.
func (t *Transport) recognise(request *http.Request) (endpoint *Endpoint, model string) {
	if request.Method != http.MethodPost {
		return nil, ""
	}
	return t.find(request)
}

// find is recognise whatever the method.
func (t *Transport) find(request *http.Request) (endpoint *Endpoint, model string) {
	host, segments := hostOf(request), segmentsOf(request.URL)
	if provider, stated := request.Context().Value(providerKey{}).(string); stated {
		return t.findFor(provider, host, segments)
	}
	for i := range t.endpoints {
		endpoint := &t.endpoints[i]
		if !endpoint.matchHost(host) {
			continue
		}
		if model, ok := endpoint.matchPath(segments); ok {
			return endpoint, model
		}
	}
	return nil, ""
}

// hostOf is where a request goes, in lower case and without the port.
func hostOf(request *http.Request) string { return strings.ToLower(request.URL.Hostname()) }
