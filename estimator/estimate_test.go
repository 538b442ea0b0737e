package estimator

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/estimator/family"
	"github.com/budgetd/budgetd/quota"
)

func estimate(t testing.TB, e *Estimator, call Call) Estimate {
	t.Helper()
	got, err := e.Estimate(call, anyDay)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return got
}

func TestEstimateOfAPrompt(t *testing.T) {
	e := newEstimator(t, Config{})
	got := estimate(t, e, Call{Model: "gpt-4o-mini-2024-07-18", Prompt: "Hello", MaxOutputTokens: tokens(3000)})
	// One user message: 3 to prime, 3 a message, 1 "user", 1 "Hello".
	// 8 x $0.15 + 3,000 x $0.60 a million.
	if got.Input != exactly(8) || got.Output != upTo(3000) || got.Cost != 1_200+1_800_000 {
		t.Errorf("input %d, output %d, cost %d; want 8, 3000, 1,801,200", got.Input, got.Output, got.Cost)
	}
	if got.Provider != "openai" || got.Model != "gpt-4o-mini" || got.Method != "tiktoken/o200k_base" || got.Encoding != O200kBase || !got.Exact {
		t.Errorf("%+v", got)
	}
	if got.PriceVersion == "" || got.PriceVersion != e.Catalogue().Version() || got.PriceVersion != got.Price.Version {
		t.Errorf("price version %q of catalogue %q", got.PriceVersion, e.Catalogue().Version())
	}
	if len(got.Lines) != 2 || got.Lines[0] != (Line{"input", 8, 150_000_000}) || got.Lines[1] != (Line{"output", 3000, 600_000_000}) {
		t.Errorf("%+v", got.Lines)
	}
	amounts, err := got.Amounts()
	want := quota.Amounts{quota.MeterInputTokens: 8, quota.MeterOutputTokens: 3000, quota.MeterTokens: 3008, quota.MeterCost: 1_801_200}
	if err != nil || !maps.Equal(amounts, want) {
		t.Errorf("amounts %v, %v; want %v", amounts, err, want)
	}
}

func TestEstimateOfOtherInputs(t *testing.T) {
	e := newEstimator(t, Config{})
	for _, tt := range []struct {
		name          string
		call          Call
		input, output quota.Tokens
		method        string
		exact         bool
	}{
		{"the caller's count", Call{Model: "gpt-4o", InputTokens: tokens(1234), MaxOutputTokens: tokens(10)}, 1234, 10, "caller", false},
		{"choices", Call{Model: "gpt-4o", InputTokens: tokens(1), MaxOutputTokens: tokens(10), N: 3}, 1, 30, "caller", false},
		{"the model's own maximum", Call{Model: "gpt-4o-mini", InputTokens: tokens(1)}, 1, 16384, "caller", false},
		{"embedding: no output", Call{Model: "text-embedding-3-small", Prompt: "2 + 2 = 4"}, 7, 0, "tiktoken/cl100k_base", true},
		{"completion: no message overhead", Call{Model: "gpt-3.5-turbo-instruct", Prompt: "2 + 2 = 4", MaxOutputTokens: tokens(1)}, 7, 1, "tiktoken/cl100k_base", true},
		// "user" is one o200k_base token: ceil(1.8) + 2, and "Hi" likewise; 40 a request, 10 a message.
		{"claude by rule", Call{Model: "claude-sonnet-4-5", Prompt: "Hi", MaxOutputTokens: tokens(1)}, 4 + 4 + 40 + 10, 1, "rule/claude", false},
	} {
		got := estimate(t, e, tt.call)
		if got.Input.Ceiling != tt.input || got.Output.Ceiling != tt.output || got.Method != tt.method || got.Exact != tt.exact {
			t.Errorf("%s: input %d, output %d, %s, exact %t; want %d, %d, %s, %t", tt.name,
				got.Input.Ceiling, got.Output.Ceiling, got.Method, got.Exact, tt.input, tt.output, tt.method, tt.exact)
		}
	}
}

func TestEstimateRefusesBadCalls(t *testing.T) {
	e := newEstimator(t, Config{MaxTextBytes: 100})
	hi := []Message{{Content: "hi"}}
	for _, tt := range []struct {
		name  string
		call  Call
		field string
	}{
		{"no input", Call{Model: "gpt-4o"}, "llm"},
		{"two inputs", Call{Model: "gpt-4o", Prompt: "x", Messages: hi}, "llm"},
		{"no model", Call{Prompt: "x"}, "model"},
		{"a huge model", Call{Model: strings.Repeat("m", 257), Prompt: "x"}, "model"},
		{"negative input", Call{Model: "gpt-4o", InputTokens: tokens(-1)}, "input_tokens"},
		{"huge input", Call{Model: "gpt-4o", InputTokens: tokens(1 << 53)}, "input_tokens"},
		{"negative output", Call{Model: "gpt-4o", Prompt: "x", MaxOutputTokens: tokens(-1)}, "max_output_tokens"},
		{"output over 2^53-1 in all", Call{Model: "gpt-4o", Prompt: "x", MaxOutputTokens: tokens(1 << 52), N: 2}, "max_output_tokens"},
		{"negative n", Call{Model: "gpt-4o", Prompt: "x", N: -1}, "n"},
		{"large n", Call{Model: "gpt-4o", Prompt: "x", N: MaxChoices + 1}, "n"},
		{"no known maximum", Call{Model: "gpt-4.5-preview", Prompt: "x"}, "max_output_tokens"},
		{"two models", Call{Model: "gpt-4o", ProviderRequest: map[string]any{"model": "o1-pro", "messages": []any{}}}, "model"},
	} {
		_, err := e.Estimate(tt.call, anyDay)
		var call *CallError
		if !errors.As(err, &call) || call.Field != tt.field {
			t.Errorf("%s: %v, want a refusal of %s", tt.name, err, tt.field)
		}
	}
	var large *TooLargeError
	if _, err := e.Estimate(Call{Model: "gpt-4o", Messages: []Message{{Content: strings.Repeat("x", 60)}, {Content: strings.Repeat("x", 60)}}}, anyDay); !errors.As(err, &large) || large.Field != "messages[1].content" || large.MaxBytes != 100 {
		t.Errorf("120 bytes of 100: %v", err)
	}
	if _, err := e.Estimate(Call{Model: "gpt-4o", Prompt: strings.Repeat("x", 96), MaxOutputTokens: tokens(1)}, anyDay); err != nil {
		t.Errorf(`96 bytes and "user" of 100: %v`, err)
	}
}

// An unknown model never costs nothing.
func TestUnknownModel(t *testing.T) {
	call := Call{Model: "brand-new-model", Prompt: "Hello", MaxOutputTokens: tokens(100)}
	var unknown *UnknownModelError
	if _, err := newEstimator(t, Config{}).Estimate(call, anyDay); !errors.As(err, &unknown) || !errors.Is(err, ErrUnknownModel) || unknown.Model != call.Model {
		t.Errorf("%v, want UnknownModelError", err)
	}
	e := newEstimator(t, Config{UnknownModel: &Ceiling{Input: 100 * usd, Output: 500 * usd}})
	got := estimate(t, e, call)
	if want := quota.NanoUSD(got.Input.Ceiling)*100_000 + 100*500_000; got.Cost != want || got.Model != call.Model || got.Provider != "" {
		t.Errorf("cost %d, want %d: %+v", got.Cost, want, got)
	}
	if m, err := e.ModelAt("", call.Model, anyDay); err != nil || m.Price.Base.CacheRead != 100*usd || m.Price.Base.Reasoning != 500*usd {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := e.Estimate(Call{Model: call.Model, Prompt: "Hello"}, anyDay); err == nil || !strings.Contains(err.Error(), "max_output_tokens") {
		t.Errorf("no bound on the output of an unknown model: %v", err)
	}
	for _, c := range []Ceiling{{0, usd}, {usd, 0}, {-1, usd}, {usd, MaxPerMillion + 1}} {
		if _, err := New(Config{UnknownModel: &c}); err == nil {
			t.Errorf("ceiling %+v was taken", c)
		}
	}
	for _, n := range []int{-1, MaxTextBytesBound + 1} {
		if _, err := New(Config{MaxTextBytes: n}); err == nil {
			t.Errorf("MaxTextBytes %d was taken", n)
		}
	}
}

func TestProviderRequests(t *testing.T) {
	e := newEstimator(t, Config{})
	count := func(encoding Encoding, text string) quota.Tokens { return quota.Tokens(mustCount(t, encoding, text)) }
	bound := func(model, text string) quota.Tokens {
		figures, err := Bounds(text, family.Of(model))
		if err != nil {
			t.Fatal(err)
		}
		return figures[0].Ceiling
	}
	const schema = `{"function":{"name":"f","parameters":{"type":"object"}},"type":"function"}`
	for _, tt := range []struct {
		name, provider, body string
		input, output        quota.Tokens
		images               int
	}{
		{"openai chat", "openai", `{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}],"max_completion_tokens":50,"n":2,"temperature":0.5}`,
			8, 100, 0},
		{"the larger of two bounds", "openai", `{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}],"max_completion_tokens":50,"max_tokens":60}`,
			8, 60, 0},
		{"openai parts", "openai", `{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"text","text":"Hello"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}],"max_tokens":1}`,
			8 + 85 + 8*170, 1, 1},
		{"openai tools", "openai", `{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}],"tools":[` + schema + `],"max_tokens":1}`,
			8 + 12 + 10 + count(O200kBase, schema), 1, 0},
		{"openai schema of the answer", "openai", `{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}],"response_format":{"type":"json_object"},"max_tokens":1}`,
			8 + count(O200kBase, `{"type":"json_object"}`), 1, 0},
		{"a field unknown yet is counted", "openai", `{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}],"hidden_prompt":"a b c","max_tokens":1}`,
			8 + count(O200kBase, `{"hidden_prompt":"a b c"}`), 1, 0},
		{"openai responses, text", "openai", `{"model":"gpt-4o","input":"Hello","instructions":"Hello","max_output_tokens":9}`,
			3 + 2*(3+1+1), 9, 0},
		{"openai responses, items", "openai", `{"model":"gpt-4o","input":[{"role":"user","content":[{"type":"input_text","text":"Hello"}]},{"type":"function_call_output","call_id":"c","output":"Hello"}],"max_output_tokens":9}`,
			3 + 5 + 3 + count(O200kBase, "function_call_output") + 1 + 1, 9, 0},
		{"openai completions, two prompts", "openai", `{"model":"gpt-3.5-turbo-instruct","prompt":["2 + 2 = 4","2 + 2 = 4"],"max_tokens":5,"n":2,"best_of":3}`,
			14, 30, 0},
		{"openai completions, token numbers", "openai", `{"model":"gpt-3.5-turbo-instruct","prompt":[1,2,3],"max_tokens":5}`,
			3, 5, 0},
		{"openai embeddings", "openai", `{"model":"text-embedding-3-small","input":["2 + 2 = 4",[1,2,3]]}`,
			10, 0, 0},
		{"anthropic", "anthropic", `{"model":"claude-sonnet-4-5-20250929","system":"Hi","messages":[{"role":"user","content":[{"type":"text","text":"Hi"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}],"max_tokens":7}`,
			40 + 2*10 + 4 + 4 + 4 + 1600, 7, 1},
		{"anthropic tool result", "anthropic", `{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"","content":[{"type":"text","text":"Hi"}]}]}],"max_tokens":7}`,
			40 + 10 + 4 + 4 + bound("claude-sonnet-4-5", "tool_result "), 7, 0},
		{"gemini", "gemini", `{"model":"models/gemini-2.5-flash","systemInstruction":{"parts":[{"text":"Hi"}]},"contents":[{"role":"user","parts":[{"text":"Hi"},{"inlineData":{"mimeType":"image/jpeg","data":"AAAA"}}]}],"generationConfig":{"maxOutputTokens":11,"candidateCount":2}}`,
			40 + 2*10 + 4 + 4 + 4 + 24*258, 22, 1},
		{"gemini in snake case", "google", `{"model":"gemini-2.5-flash","system_instruction":{"parts":[{"text":"Hi"}]},"contents":[{"parts":[{"text":"Hi"}]}],"generation_config":{"max_output_tokens":11}}`,
			40 + 2*10 + 4 + 4, 11, 0},
		{"the layout of the model's own provider", "", `{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":"Hi"}],"max_tokens":7}`,
			40 + 10 + 4 + 4, 7, 0},
	} {
		got, err := e.Estimate(Call{Provider: tt.provider, ProviderRequest: parse(t, tt.body)}, anyDay)
		if err != nil || got.Input.Ceiling != tt.input || got.Output.Ceiling != tt.output || got.Images() != tt.images {
			t.Errorf("%s: input %d, output %d, %d images, %v; want %d, %d, %d", tt.name, got.Input.Ceiling, got.Output.Ceiling, got.Images(), err, tt.input, tt.output, tt.images)
		}
	}
}

func TestProviderRequestsRefused(t *testing.T) {
	e := newEstimator(t, Config{})
	const m = "provider_request"
	for _, tt := range []struct{ provider, body, field string }{
		{"openai", `{"model":"gpt-4o"}`, m},
		{"openai", `{"model":7}`, m + ".model"},
		{"openai", `{"model":"gpt-4o","messages":"Hi"}`, m + ".messages"},
		{"openai", `{"model":"gpt-4o","messages":["Hi"]}`, m + ".messages[0]"},
		{"openai", `{"model":"gpt-4o","messages":[{"role":"user","content":7}]}`, m + ".messages[0].content"},
		{"openai", `{"model":"gpt-4o","messages":[],"max_tokens":-1}`, m + ".max_tokens"},
		{"openai", `{"model":"gpt-4o","messages":[],"max_tokens":1.5}`, m + ".max_tokens"},
		{"openai", `{"model":"gpt-4o","messages":[],"max_tokens":9223372036854775808}`, m + ".max_tokens"},
		{"openai", `{"model":"gpt-4o","messages":[],"n":1000}`, "n"},
		{"openai", `{"model":"gpt-4o","messages":[],"tools":[{"type":"web_search"}]}`, m + ".tools[0].type"},
		{"openai", `{"model":"gpt-4o","messages":[],"web_search_options":{}}`, m + ".web_search_options"},
		{"groq", `{"model":"llama-3.3-70b-versatile","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, m + ".messages[0].content[0]"},
		{"groq", `{"model":"llama-3.3-70b-versatile","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA"}}]}]}`, m + ".messages[0].content[0].input_audio"},
		{"openai", `{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"hologram"}]}]}`, m + ".messages[0].content[0].type"},
		{"openai", `{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"image_url","image_url":7}]}]}`, m + ".messages[0].content[0].image_url"},
		{"openai", `{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"file","file":"f"}]}]}`, m + ".messages[0].content[0].file"},
		{"anthropic", `{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":[{"type":"image","source":"x"}]}]}`, m + ".messages[0].content[0].source"},
		{"gemini", `{"model":"gemini-2.5-flash","contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":7}}]}]}`, m + ".contents[0].parts[0].inlineData.data"},
		{"anthropic", `{"model":"claude-sonnet-4-5"}`, m + ".messages"},
		{"anthropic", `{"model":"claude-sonnet-4-5","messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`, m + ".tools[0].type"},
		{"anthropic", `{"model":"claude-sonnet-4-5","messages":[],"container":"c"}`, m + ".container"},
		{"gemini", `{"model":"gemini-2.5-flash"}`, m + ".contents"},
		{"gemini", `{"model":"gemini-2.5-flash","contents":[],"tools":[{"googleSearch":{}}]}`, m + ".tools[0]"},
		{"gemini", `{"model":"gemini-2.5-flash","contents":[],"generationConfig":{"maxOutputTokens":-1}}`, m + ".generationConfig.maxOutputTokens"},
		{"cohere", `{"model":"command-r","messages":[]}`, "provider"},
	} {
		_, err := e.Estimate(Call{Provider: tt.provider, ProviderRequest: parse(t, tt.body)}, anyDay)
		var call *CallError
		if !errors.As(err, &call) || call.Field != tt.field {
			t.Errorf("%s: %v, want a refusal of %s", tt.body, err, tt.field)
		}
	}
}

// The caller's own count lets a body pass whose input can't be bounded; the
// rest of the body still counts.
func TestCallersCountBesideABody(t *testing.T) {
	e := newEstimator(t, Config{})
	body := parse(t, `{"model":"gpt-4o","input":[{"type":"message","role":"user","content":[{"type":"hologram"}]}],"tools":[{"type":"web_search"}],"max_output_tokens":70}`)
	got := estimate(t, e, Call{Provider: "openai", ProviderRequest: body, InputTokens: tokens(5000)})
	if got.Input != exactly(5000) || got.Output != upTo(70) || got.Method != "caller" {
		t.Errorf("%+v", got)
	}
}

// An image is measured as an image: its base64 is neither counted as text
// (seen at 634,000 tokens elsewhere) nor held against the bound of text.
func TestImagesAreNotText(t *testing.T) {
	e := newEstimator(t, Config{MaxTextBytes: 1000})
	data := strings.Repeat("iVBORw0KGgo", 100_000)
	for provider, body := range map[string]map[string]any{
		"openai": {"model": "gpt-4o", "messages": []any{map[string]any{"role": "user", "content": []any{
			map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64," + data}}}}}},
		"anthropic": {"model": "claude-sonnet-4-5", "messages": []any{map[string]any{"role": "user", "content": []any{
			map[string]any{"type": "tool_result", "tool_use_id": "t", "content": []any{
				map[string]any{"type": "image", "source": map[string]any{"type": "base64", "data": data}}}}}}}},
		"gemini": {"model": "gemini-2.5-flash", "contents": []any{map[string]any{"role": "user", "parts": []any{
			map[string]any{"inlineData": map[string]any{"mimeType": "image/png", "data": data}}}}}},
	} {
		got := estimate(t, e, Call{Provider: provider, ProviderRequest: body})
		if got.Images() != 1 || got.Input.Ceiling > 13_000 || got.Exact {
			t.Errorf("%s: %d tokens for %d images, exact %t", provider, got.Input.Ceiling, got.Images(), got.Exact)
		}
	}
}

// What a call may write to a cache decides the price of its input.
func TestWorstCaseOfTheCache(t *testing.T) {
	e := newEstimator(t, Config{})
	model, err := e.ModelAt("anthropic", "claude-opus-4-5", anyDay)
	if err != nil {
		t.Fatal(err)
	}
	price := model.Price
	body := func(control string) map[string]any {
		return parse(t, `{"model":"claude-opus-4-5","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"Hi"`+control+`}]}]}`)
	}
	for name, tt := range map[string]struct {
		call  Call
		price PerMillion
	}{
		"no cache_control":   {Call{Provider: "anthropic", ProviderRequest: body("")}, price.Base.Input},
		"five minutes":       {Call{Provider: "anthropic", ProviderRequest: body(`,"cache_control":{"type":"ephemeral"}`)}, price.Base.CacheWrite},
		"one hour":           {Call{Provider: "anthropic", ProviderRequest: body(`,"cache_control":{"type":"ephemeral","ttl":"1h"}`)}, price.Base.CacheWrite1h},
		"not known: default": {Call{Model: "claude-opus-4-5", InputTokens: tokens(1000), MaxOutputTokens: tokens(1)}, price.Base.CacheWrite},
	} {
		got := estimate(t, e, tt.call)
		var sum sum
		sum.addTokens(got.Input.Ceiling, tt.price)
		sum.addTokens(1, price.Base.Output)
		want, err := sum.roundedUp()
		if err != nil || got.Cost != want {
			t.Errorf("%s: cost %d, want %d (%v)", name, got.Cost, want, err)
		}
	}
}

// What the provider keeps, or what can't be measured, is bounded by what the
// model can read at all, once for all of it.
func TestStoredInputIsBoundedByTheContextWindow(t *testing.T) {
	e := newEstimator(t, Config{})
	for _, tt := range []struct {
		name, provider, body string
		kind                 Kind
		count                int64
	}{
		{"an earlier response", "openai", `{"model":"gpt-4o","input":"Hi","previous_response_id":"r","max_output_tokens":1}`, KindStored, 1},
		{"a conversation and items", "openai", `{"model":"gpt-4o","input":[{"type":"item_reference","id":"x"},{"type":"item_reference","id":"y"}],"conversation":"c","max_output_tokens":1}`, KindStored, 3},
		{"a stored prompt", "openai", `{"model":"gpt-4o","prompt":{"id":"p"},"max_output_tokens":1}`, KindStored, 1},
		{"a file by id", "openai", `{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}],"max_tokens":1}`, KindPages, 1},
		{"a document by URL", "anthropic", `{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":[{"type":"document","source":{"type":"url","url":"https://example.com/a.pdf"}}]}],"max_tokens":1}`, KindPages, 1},
		{"a file by URI", "gemini", `{"model":"gemini-2.5-flash","contents":[{"parts":[{"fileData":{"mimeType":"application/pdf","fileUri":"gs://a"}}]}],"generationConfig":{"maxOutputTokens":1}}`, KindPages, 1},
		{"a video", "gemini", `{"model":"gemini-2.5-flash","contents":[{"parts":[{"inlineData":{"mimeType":"video/mp4","data":"AAAA"}}]}],"generationConfig":{"maxOutputTokens":1}}`, KindVideo, 1},
		{"a cache", "gemini", `{"model":"gemini-2.5-flash","contents":[],"cachedContent":"c","generationConfig":{"maxOutputTokens":1}}`, KindStored, 1},
	} {
		got, err := e.Estimate(Call{Provider: tt.provider, ProviderRequest: parse(t, tt.body)}, anyDay)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		model, err := e.ModelAt(got.Provider, got.Model, anyDay)
		if err != nil || model.ContextWindow == 0 {
			t.Fatalf("%+v, %v", model, err)
		}
		found := false
		for _, part := range got.Parts {
			if part.Kind == tt.kind {
				found = part.Count == tt.count && part.Tokens == upTo(model.ContextWindow) && part.Method == "context-window"
			}
		}
		if !found || got.Exact || got.Input.Ceiling < model.ContextWindow || got.Input.Ceiling > model.ContextWindow+200 {
			t.Errorf("%s: %+v of a window of %d", tt.name, got.Parts, model.ContextWindow)
		}
	}
	// Without a known window there is no bound.
	unknown := newEstimator(t, Config{UnknownModel: &Ceiling{Input: usd, Output: usd}})
	var call *CallError
	if _, err := unknown.Estimate(Call{Provider: "openai", ProviderRequest: parse(t, `{"model":"brand-new","input":"Hi","previous_response_id":"r","max_output_tokens":1}`)}, anyDay); !errors.As(err, &call) || call.Field != "provider_request.previous_response_id" {
		t.Errorf("%v, want a refusal of previous_response_id", err)
	}
}

// Deep and wide values are bounded before they are marshalled.
func TestDeepSchemasAreBounded(t *testing.T) {
	e := newEstimator(t, Config{})
	var deep any = map[string]any{}
	for range maxDepth + 5 {
		deep = map[string]any{"items": deep}
	}
	body := map[string]any{"model": "gpt-4o", "messages": []any{}, "tools": []any{map[string]any{"type": "function", "function": deep}}}
	var large *TooLargeError
	if _, err := e.Estimate(Call{Provider: "openai", ProviderRequest: body}, anyDay); !errors.As(err, &large) {
		t.Errorf("%v, want TooLargeError", err)
	}
	many := make([]any, maxItems+1)
	for i := range many {
		many[i] = map[string]any{"role": "user"}
	}
	var call *CallError
	if _, err := e.Estimate(Call{Provider: "openai", ProviderRequest: map[string]any{"model": "gpt-4o", "messages": many}}, anyDay); !errors.As(err, &call) {
		t.Errorf("%v, want CallError", err)
	}
}

func TestErrorsHoldNoPrompt(t *testing.T) {
	e := newEstimator(t, Config{MaxTextBytes: 10})
	const secret = "the secret of the prompt"
	for _, call := range []Call{
		{Model: "gpt-4o", Prompt: secret},
		{Model: "nope", Prompt: secret},
		{Provider: "openai", ProviderRequest: map[string]any{"model": "gpt-4o", "messages": []any{secret}}},
		{Provider: "openai", ProviderRequest: map[string]any{"model": "gpt-4o", "messages": secret}},
	} {
		if _, err := e.Estimate(call, anyDay); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%v", err)
		}
	}
}

func FuzzProviderRequest(f *testing.F) {
	e := newEstimator(f, Config{MaxTextBytes: 1 << 16, UnknownModel: &Ceiling{Input: usd, Output: usd}})
	f.Add("openai", `{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url"}]}],"max_tokens":5,"n":2,"tools":[{"type":"function"}]}`)
	f.Add("openai", `{"model":"gpt-4o","input":[{"type":"function_call_output","output":[{"type":"input_text","text":"x"}]}],"instructions":"y"}`)
	f.Add("openai", `{"model":"gpt-3.5-turbo-instruct","prompt":[[1,2],[3]],"best_of":3}`)
	f.Add("anthropic", `{"model":"claude-3-opus","system":[{"type":"text","text":"x","cache_control":{"ttl":"1h"}}],"messages":[{"role":"user","content":"x"}],"max_tokens":1e2}`)
	f.Add("gemini", `{"contents":[{"parts":[{"text":"x"},{"functionCall":{"name":"f"}}]}],"generation_config":{"candidate_count":3},"tools":[{"functionDeclarations":[{}]}]}`)
	f.Fuzz(func(t *testing.T, provider, text string) {
		body, err := ParseJSON("provider_request", []byte(text))
		if err != nil {
			return
		}
		before, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Estimate(Call{Model: "", Provider: provider, ProviderRequest: body, MaxOutputTokens: tokens(10)}, anyDay)
		if after, _ := json.Marshal(body); string(after) != string(before) {
			t.Error("the body was changed")
		}
		if err != nil {
			for _, kind := range []error{ErrInvalidCall, ErrTooLarge, ErrUnknownModel, quota.ErrOverflow} {
				if errors.Is(err, kind) {
					return
				}
			}
			t.Fatalf("untyped error %v", err)
		}
		if got.Input.Floor < 0 || got.Input.Floor > got.Input.Expected || got.Input.Expected > got.Input.Ceiling || got.Output.Ceiling < 0 || got.Cost < 0 || (got.Cost == 0 && got.Input.Ceiling+got.Output.Ceiling > 0 && got.Price.Base.Input > 0) {
			t.Errorf("%+v", got)
		}
		if again, err := e.Estimate(Call{Provider: provider, ProviderRequest: body, MaxOutputTokens: tokens(10)}, anyDay); err != nil || again.Input != got.Input || again.Cost != got.Cost {
			t.Errorf("a second estimate differs: %+v, %+v, %v", got, again, err)
		}
	})
}
