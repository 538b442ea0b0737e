package sdks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"
	"google.golang.org/genai"

	"github.com/budgetd/budgetd/test/provider"
)

// scenario is one call and what the SDK is to make of it.
type scenario struct {
	endpoint
	what   string
	script provider.Script
	status int   // of the error that the SDK returns; 0: none
	cut    bool  // the SDK returns an error of the connection, after the text that came
	tries  []int // status of each try, as the provider answered; nil: 200
}

func (s scenario) name() string { return s.endpoint.name + ", " + s.what }

// words are tokens of their own in every encoding of OpenAI.
var words = []string{"Hello", " there", " world", " again", "."}

const embedded = "[0.25,-0.5,0.125][0.25,-0.5,0.125]"

// scenarios are all that is tried, each way to the provider.
func scenarios() []scenario {
	var all []scenario
	add := func(e endpoint, what string, script provider.Script, more ...func(*scenario)) {
		s := scenario{endpoint: e, what: what, script: script}
		s.script.ID = strings.ReplaceAll(e.name+" "+what, " ", "-")
		for _, change := range more {
			change(&s)
		}
		all = append(all, s)
	}
	tries := func(statuses ...int) func(*scenario) { return func(s *scenario) { s.tries = statuses } }
	fails := func(status int, statuses ...int) func(*scenario) {
		return func(s *scenario) { s.status, s.tries = status, statuses }
	}
	faults := func(statuses ...int) []provider.Fault {
		var list []provider.Fault
		for _, status := range statuses {
			list = append(list, provider.Fault{Status: status, RetryAfterMS: "1"})
		}
		return list
	}
	tool := &provider.Tool{Name: "weather", Arguments: `{"city":"Zürich","unit":"C"}`}

	writers := []endpoint{
		chatPlain, chatStream, chatUsage, responsesPlain, responseStream, messagesPlain, messagesStream, generatePlain, generateStream,
	}
	for _, e := range writers {
		add(e, "text", provider.Script{Pieces: words, Tokens: provider.Tokens{Input: 8}})
		add(e, "cached and reasoning", provider.Script{Pieces: words, Tokens: provider.Tokens{Input: 37, CacheRead: 1024, Output: 17, Reasoning: 64}})
		add(e, "tool", provider.Script{Pieces: words[:2], Tool: tool, Tokens: provider.Tokens{Input: 90, Output: 31}})
		add(e, "tool alone", provider.Script{Tool: tool, Tokens: provider.Tokens{Input: 91, Output: 29}})
		add(e, "no such request", provider.Script{Faults: faults(400)}, fails(400, 400))
		add(e, "failed twice", provider.Script{Pieces: words, Tokens: provider.Tokens{Input: 8}, Faults: faults(500, 503)}, tries(500, 503, 200))
		add(e, "refused for good", provider.Script{Faults: faults(429, 429, 429)}, fails(429, 429, 429, 429))
	}
	for _, e := range []endpoint{messagesPlain, messagesStream} {
		add(e, "cache written", provider.Script{
			Pieces: words, Thinking: "Let me see.",
			Tokens: provider.Tokens{Input: 12, CacheRead: 7, CacheWrite: 2048, CacheWrite1h: 4096, Output: 6, Reasoning: 4},
		})
		add(e, "overloaded", provider.Script{Pieces: words, Tokens: provider.Tokens{Input: 8}, Faults: faults(529)}, tries(529, 200))
	}
	for _, e := range []endpoint{chatStream, chatUsage, responseStream, messagesStream, generateStream} {
		add(e, "cut", provider.Script{Pieces: words, CutAfter: 3, Tokens: provider.Tokens{Input: promptTokens}}, func(s *scenario) { s.cut = true })
	}
	add(embeddings, "two texts", provider.Script{Tokens: provider.Tokens{Input: 2}})
	add(embeddings, "failed once", provider.Script{Tokens: provider.Tokens{Input: 2}, Faults: faults(500)}, tries(500, 200))
	return all
}

// run makes the call, and checks what the SDK makes of the answer and what the
// provider entered into its books.
func (s scenario) run(t *testing.T, c clients, p *provider.Provider) {
	t.Helper()
	got, err := s.call(context.Background(), c, s.script)
	if status := statusOf(err); status != s.status || (err != nil) != (s.cut || s.status != 0) {
		t.Fatalf("the SDK returns %v (status %d), want status %d, cut %v", err, status, s.status, s.cut)
	}
	if want := s.heard(); s.status == 0 && got != want {
		t.Errorf("the SDK heard\n%+v, want\n%+v", got, want)
	}
	tries := s.tries
	if tries == nil {
		tries = []int{200}
	}
	var statuses []int
	for _, call := range p.Calls() {
		if call.ID == s.script.ID {
			statuses = append(statuses, call.Status)
		}
	}
	if fmt.Sprint(statuses) != fmt.Sprint(tries) {
		t.Errorf("the provider answered %v, want %v", statuses, tries)
	}
}

// heard is what the SDK is to hear.
func (s scenario) heard() heard {
	tokens := s.script.Tokens
	if s.endpoint.name == embeddings.name {
		return heard{Text: embedded, Prompt: tokens.Input}
	}
	if tokens.Output == 0 {
		tokens.Output = int64(len(s.script.Pieces))
	}
	h := heard{
		Text:   strings.Join(s.script.Pieces, ""),
		Prompt: tokens.Input + tokens.CacheRead + tokens.CacheWrite + tokens.CacheWrite1h, Cached: tokens.CacheRead,
		Answer: tokens.Output + tokens.Reasoning, Reasoning: tokens.Reasoning,
	}
	if s.script.Tool != nil {
		h.Tool = s.script.Tool.Name + s.script.Tool.Arguments
	}
	if s.cut {
		h.Text = strings.Join(s.script.Pieces[:s.script.CutAfter], "")
		switch s.endpoint.name {
		case messagesStream.name:
			h.Answer = 1 // what message_start told
		case generateStream.name:
			h.Answer = int64(s.script.CutAfter)
		default:
			h.Prompt, h.Answer = 0, 0 // the usage would have come at the end
		}
	}
	if s.endpoint.name == chatStream.name {
		h.Prompt, h.Cached, h.Answer, h.Reasoning = 0, 0, 0, 0 // not asked for
	}
	return h
}

// statusOf is the status of an SDK's error; 0 when it is none of an answer.
func statusOf(err error) int {
	var o *openai.Error
	var a *anthropic.Error
	var g genai.APIError
	var n *nodeError
	switch {
	case errors.As(err, &o):
		return o.StatusCode
	case errors.As(err, &a):
		return a.StatusCode
	case errors.As(err, &g):
		return g.Code
	case errors.As(err, &n):
		return n.Status
	}
	return 0
}
