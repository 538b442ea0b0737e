package estimator

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/quota"
)

// wireStream is one streamed answer of a provider, event by event.
type wireStream struct {
	Provider   string                  `json:"provider"`
	Model      string                  `json:"model"`
	Events     []json.RawMessage       `json:"events"`
	Tokens     map[string]quota.Tokens `json:"tokens"` // -1: by the text
	Searches   Quantity                `json:"searches"`
	Tier       string                  `json:"tier"`
	Speed      string                  `json:"speed"`
	Ended      bool                    `json:"ended"`
	ToldInput  bool                    `json:"told_input"`
	ToldOutput bool                    `json:"told_output"`
}

// event is what a transport hands over: [DONE] is no JSON.
func (w *wireStream) event(i int) []byte {
	if string(w.Events[i]) == `"[DONE]"` {
		return []byte("[DONE]")
	}
	return w.Events[i]
}

func newStream(t testing.TB, provider, model string) *Stream {
	t.Helper()
	m, err := newEstimator(t, Config{UnknownModel: &Ceiling{Input: usd, Output: usd}}).ModelAt("", model, anyDay)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewStream(provider, m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStreams(t *testing.T) {
	wireFiles(t, "streams", func(t *testing.T, example wireStream) {
		s := newStream(t, example.Provider, example.Model)
		var last Streamed
		for i := range example.Events {
			data := append([]byte(nil), example.event(i)...)
			if err := s.Event(data); err != nil {
				t.Fatalf("event %d: %v", i, err)
			}
			clear(data) // not kept
			var err error
			if last, err = s.Streamed(); err != nil {
				t.Fatalf("after event %d: %v", i, err)
			}
			output, err := last.Use.Tokens.TotalOutput()
			if err != nil || !last.Ended && output < last.Seen.Expected {
				t.Errorf("cut after event %d: %d tokens of output, %d seen, %v", i, output, last.Seen.Expected, err)
			}
		}
		var counts [numberOfClasses]quota.Tokens
		for i, name := range classNames {
			if counts[i] = example.Tokens[name]; counts[i] < 0 {
				counts[i] = last.Seen.Expected
				if last.Seen.Expected < 5 {
					t.Errorf("%+v seen", last.Seen)
				}
			}
		}
		want := Streamed{
			Use:  Use{Tokens: TokenClassesOf(counts), Units: Units{Searches: example.Searches}, Tier: example.Tier, Speed: example.Speed},
			Seen: last.Seen, Ended: example.Ended, ToldInput: example.ToldInput, ToldOutput: example.ToldOutput,
		}
		if want.Use.Tier == "" && strings.EqualFold(last.Use.Tier, "default") {
			want.Use.Tier = last.Use.Tier
		}
		if last != want || example.ToldOutput && last.Seen != (Figures{}) {
			t.Errorf("%+v, want %+v", last, want)
		}
	})
}

// A cut stream gives what was seen: of the input what the provider told, of the
// output the text.
func TestCutStreams(t *testing.T) {
	text := strings.Repeat("the quick brown fox ", 500)
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	s := newStream(t, "anthropic", "claude-sonnet-4-5")
	for _, event := range []string{
		`{"type":"message_start","message":{"usage":{"input_tokens":25,"cache_read_input_tokens":7,"output_tokens":1}}}`,
		`{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":` + string(quoted) + `}}`,
	} {
		if err := s.Event([]byte(event)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Streamed()
	if err != nil || got.Ended || !got.ToldInput || got.ToldOutput || got.Use.Tokens.Input != 25 || got.Use.Tokens.CacheRead != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	if got.Use.Tokens.Output != got.Seen.Expected || got.Seen.Floor < 1000 || got.Seen.Floor > got.Seen.Expected || got.Seen.Expected > got.Seen.Ceiling {
		t.Errorf("%d tokens of output, %+v seen", got.Use.Tokens.Output, got.Seen)
	}
	// However long, little of it is kept, and all of it counts.
	long := newStream(t, "openai", "gpt-4o-mini")
	chunk := []byte(`{"choices":[{"delta":{"content":` + string(quoted) + `}}]}`)
	for range 30 {
		if err := long.Event(chunk); err != nil {
			t.Fatal(err)
		}
		if len(long.text) > maxSeenText {
			t.Fatalf("%d bytes are kept", len(long.text))
		}
	}
	got, err = long.Streamed()
	if one := mustCount(t, O200kBase, text); err != nil || got.Use.Tokens.Output < quota.Tokens(29*one) || got.Use.Tokens.Output > quota.Tokens(31*one) || got.ToldInput {
		t.Errorf("%d tokens of 30 times %d, %v", got.Use.Tokens.Output, one, err)
	}
	// Nothing seen is nothing used, and said to be so.
	if got, err := newStream(t, "openai", "gpt-4o").Streamed(); err != nil || got != (Streamed{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A bad event changes nothing, and the stream goes on.
func TestBadEvents(t *testing.T) {
	for provider, bad := range map[string][]string{
		"openai":    {`{`, `7`, `[]`, `{"choices":7}`, `{"choices":[{"delta":"x"}]}`, `{"usage":"` + strings.Repeat("x", MaxUsageBytes) + `"}`},
		"anthropic": {`{"usage":7}`, `{"usage":[]}`, `{"delta":7}`, `{"message":{"usage":"x"}}`},
		"gemini":    {`{"candidates":{}}`, `{"usageMetadata":"x"}`},
		"bedrock":   {`{"delta":[]}`, `{"metadata":7}`},
	} {
		s := newStream(t, provider, "gpt-4o")
		for _, event := range append(bad, strings.Repeat(" ", 10)+`{"a":"`+strings.Repeat("x", MaxEventBytes)+`"}`) {
			var call *CallError
			if err := s.Event([]byte(event)); !errors.As(err, &call) || strings.Contains(err.Error(), "xxxx") {
				t.Errorf("%s, %.60s: %v", provider, event, err)
			}
		}
		if got, err := s.Streamed(); err != nil || got != (Streamed{}) {
			t.Errorf("%s: %+v, %v", provider, got, err)
		}
		for _, nothing := range []string{"", " \n", "null", "{}", `{"usage":null}`} {
			if err := s.Event([]byte(nothing)); err != nil {
				t.Errorf("%s, %q: %v", provider, nothing, err)
			}
		}
	}
	if _, err := NewStream("nobody", Model{}); !errors.Is(err, ErrInvalidCall) {
		t.Errorf("%v", err)
	}
	s := newStream(t, "openai", "gpt-4o")
	if err := s.Event([]byte(`{"usage":{"prompt_tokens":-1}}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Streamed(); !errors.Is(err, ErrInvalidCall) {
		t.Errorf("a negative count: %v", err)
	}
}

// A chunk of an answer costs a few small allocations, whatever its length.
func TestStreamAllocations(t *testing.T) {
	s := newStream(t, "openai", "gpt-4o")
	chunk := []byte(`{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o","service_tier":"default","choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null}],"usage":null}`)
	if n := testing.AllocsPerRun(1000, func() {
		if err := s.Event(chunk); err != nil {
			t.Fatal(err)
		}
	}); n > 16 {
		t.Errorf("%.0f allocations a chunk", n)
	}
}

func FuzzStream(f *testing.F) {
	f.Add("openai", `{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`, `{"type":"response.completed","response":{"usage":{"input_tokens":1,"output_tokens":2}}}`)
	f.Add("anthropic", `{"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}`, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`)
	f.Add("gemini", `{"candidates":[{"content":{"parts":[{"text":"x"}]}}],"usageMetadata":{"promptTokenCount":1}}`, `{"candidates":[{"finishReason":"STOP"}]}`)
	f.Add("bedrock", `{"contentBlockDelta":{"delta":{"text":"x"}}}`, `{"metadata":{"usage":{"inputTokens":1},"serviceTier":{"type":"flex"}}}`)
	f.Fuzz(func(t *testing.T, provider, one, two string) {
		s, err := NewStream(provider, Model{ID: "x", Encoding: O200kBase})
		if err != nil {
			return
		}
		for _, event := range []string{one, two, one} {
			if err := s.Event([]byte(event)); err != nil && !errors.Is(err, ErrInvalidCall) {
				t.Fatalf("untyped error %v", err)
			}
			got, err := s.Streamed()
			switch {
			case err != nil && !errors.Is(err, ErrInvalidCall):
				t.Fatalf("untyped error %v", err)
			case err == nil && got.Use.Check() != nil:
				t.Fatalf("%+v", got)
			}
		}
	})
}
