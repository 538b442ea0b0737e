package proxy

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/budgetd/budgetd/clients/go/transport"
	"github.com/budgetd/budgetd/estimator/answer"
	"github.com/budgetd/budgetd/internal/spelling"
)

// maxShown bounds what a refusal repeats of a path, in bytes.
const maxShown = 200

// paths are those of the calls that are forwarded, after the version.
var paths = map[answer.Layout][]string{
	answer.OpenAI:    {"chat/completions", "responses", "completions", "embeddings", "models"},
	answer.Anthropic: {"v1/messages", "v1/messages/count_tokens", "v1/models"},
	answer.Gemini:    {"models"},
}

// geminiMethods are those that are forwarded.
var geminiMethods = []string{"generateContent", "streamGenerateContent", "countTokens"}

// basePath is the path of the base URL to set in SDKs for an upstream.
func (p *Proxy) basePath(name string) string {
	base := p.config.Upstreams[name].Path
	if answer.LayoutOrOpenAI(name) == answer.OpenAI && !version.MatchString(base[strings.LastIndex(base, "/")+1:]) {
		return "/" + name + "/v1"
	}
	return "/" + name
}

// apiPath is what comes before the paths of an upstream's calls.
func (p *Proxy) apiPath(name string) string {
	if answer.LayoutOrOpenAI(name) == answer.Gemini {
		return p.basePath(name) + "/v1beta"
	}
	return p.basePath(name)
}

// nearest is the path that may have been meant by one that is not forwarded, ""
// for none. What is not looked at is case, empty segments and versions, which are
// often missing, doubled or in the wrong place.
func (p *Proxy) nearest(r *http.Request) string {
	if len(r.URL.Path) > maxShown {
		return ""
	}
	given := strings.FieldsFunc(r.URL.Path, func(r rune) bool { return r == '/' })
	model, method := "", ""
	if n := len(given); n > 0 {
		if name, call, ok := strings.Cut(given[n-1], ":"); ok {
			model, given[n-1] = name, "CALL"
			method = spelling.Nearest(call, slices.Values(geminiMethods), 3)
		}
	}
	meant := map[string]string{} // by what is compared
	add := func(whole string, segments ...string) {
		if plain := plainPath(strings.Split(strings.Join(segments, "/"), "/")); meant[plain] == "" {
			meant[plain] = whole
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.config.Upstreams)) {
		for _, path := range paths[answer.LayoutOrOpenAI(name)] {
			add(p.apiPath(name)+"/"+path, name, path)
			if name == openAI {
				add("/v1/"+path, path)
			} else if name == anthropic && path != "v1/models" {
				add("/"+path, path)
			}
		}
		if answer.LayoutOrOpenAI(name) == answer.Gemini && model != "" && method != "" {
			call := "/models/" + model + ":" + method
			add(p.apiPath(name)+call, name, "models", "CALL")
			if name == gemini {
				add("/v1beta"+call, "models", "CALL")
			}
		}
	}
	best := spelling.Nearest(plainPath(given), slices.Values(slices.Sorted(maps.Keys(meant))), 2)
	return meant[best]
}

// plainPath is a path without what nearest does not look at.
func plainPath(segments []string) string {
	kept := slices.DeleteFunc(slices.Clone(segments), func(segment string) bool { return version.MatchString(strings.ToLower(segment)) })
	return strings.ToLower(strings.Join(kept, "/"))
}

// notFound is the refusal of a path that is none here.
func (p *Proxy) notFound(r *http.Request) *transport.Fault {
	text := fmt.Sprintf("budget proxy: %s %s is not a call that goes anywhere", r.Method, shownPath(r))
	switch near := p.nearest(r); {
	case near == r.URL.EscapedPath():
		text += ": this path takes another method"
	case near != "":
		text += fmt.Sprintf(": did you mean %s?", near)
	}
	var bases []string
	for _, name := range slices.Sorted(maps.Keys(p.config.Upstreams)) {
		bases = append(bases, p.basePath(name))
	}
	return &transport.Fault{Kind: transport.FaultNotFound, Message: fmt.Sprintf(
		"%s (base URLs for SDKs are this proxy's address with %s; nothing was sent on)", text, strings.Join(bases, ", "))}
}

// notForwarded is the refusal of a call to a known upstream that is none of those
// that are forwarded.
func notForwarded(r *http.Request) *transport.Fault {
	return &transport.Fault{Kind: transport.FaultDenied, Message: fmt.Sprintf(
		"budget proxy: %s %s is not forwarded, since nobody could say what it costs: only chat completions, responses, completions, embeddings, messages, generateContent, counts of tokens and lists of models are",
		r.Method, shownPath(r))}
}

func shownPath(r *http.Request) string {
	path := r.URL.EscapedPath()
	if len(path) > maxShown {
		return path[:maxShown] + "..."
	}
	return path
}
