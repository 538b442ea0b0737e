package answer

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func seen(t *testing.T, s *Stream) Answer {
	t.Helper()
	got, err := s.Answer()
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A cut stream gives what was seen: of the input what the provider told, of the
// output the text.
func TestCutStreams(t *testing.T) {
	s := NewStream(Anthropic)
	for _, event := range []string{
		`{"type":"message_start","message":{"usage":{"input_tokens":25,"cache_read_input_tokens":7,"output_tokens":1}}}`,
		`{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"Let me "}}`,
		`{"type":"content_block_delta","delta":{"type":"text_delta","text":"se\u0065\n"}}`,
	} {
		data := []byte(event)
		if err := s.Event(data); err != nil {
			t.Fatal(err)
		}
		clear(data) // not kept
	}
	got := seen(t, s)
	usage, _ := json.Marshal(got.Usage)
	if string(usage) != `{"usage":{"cache_read_input_tokens":7,"input_tokens":25,"output_tokens":1}}` || got.Text != "Let me see\n" || got.Ended || !got.ToldInput || got.ToldOutput {
		t.Errorf("%s, %+v", usage, got)
	}
	// However long, little of it is kept.
	long := NewStream(OpenAI)
	chunk := []byte(`{"choices":[{"delta":{"content":"` + strings.Repeat("é", MaxTextBytes/3) + `"}}]}`)
	for range 4 {
		if err := long.Event(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if got := seen(t, long); len(got.Text) < MaxTextBytes-1 || len(got.Text) > MaxTextBytes || got.Usage != nil {
		t.Errorf("%d bytes are kept, usage %v", len(got.Text), got.Usage)
	}
	// Nothing seen is nothing told, and said to be so.
	if got := seen(t, NewStream(Gemini)); !reflect.DeepEqual(got, Answer{}) {
		t.Errorf("%+v", got)
	}
}

// A bad event changes nothing, and the stream goes on.
func TestBadEvents(t *testing.T) {
	for layout, bad := range map[Layout][]string{
		OpenAI:    {`{`, `7`, `[]`, `{"choices":7}`, `{"choices":[{"delta":"x"}]}`, `{"usage":"` + strings.Repeat("x", MaxUsageBytes) + `"}`},
		Anthropic: {`{"usage":7}`, `{"usage":[]}`, `{"delta":7}`, `{"message":{"usage":"x"}}`},
		Gemini:    {`{"candidates":{}}`, `{"usageMetadata":"x"}`},
		Bedrock:   {`{"delta":[]}`, `{"metadata":7}`},
	} {
		s := NewStream(layout)
		for _, event := range append(bad, strings.Repeat(" ", 10)+`{"a":"`+strings.Repeat("x", MaxEventBytes)+`"}`) {
			if err := s.Event([]byte(event)); err == nil || strings.Contains(err.Error(), "xxxx") {
				t.Errorf("%s, %.60s: %v", layout, event, err)
			}
		}
		if got := seen(t, s); !reflect.DeepEqual(got, Answer{}) {
			t.Errorf("%s: %+v", layout, got)
		}
		for _, nothing := range []string{"", " \n", "null", "{}", `{"usage":null}`} {
			if err := s.Event([]byte(nothing)); err != nil {
				t.Errorf("%s, %q: %v", layout, nothing, err)
			}
		}
	}
	s := NewStream(OpenAI)
	if err := s.Event([]byte(`{"usage":7}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Answer(); err == nil {
		t.Error("a usage that is no object is an answer")
	}
}

func TestLayouts(t *testing.T) {
	for name, want := range map[string]Layout{"OpenAI": OpenAI, "groq": OpenAI, "anthropic": Anthropic, "Vertex_AI": Gemini, "bedrock_converse": Bedrock, "nobody": "", "": ""} {
		if got, ok := LayoutOf(name); got != want || ok != (want != "") {
			t.Errorf("LayoutOf(%q) = %q, %t", name, got, ok)
		}
	}
}

func TestWholeAnswers(t *testing.T) {
	for _, tt := range []struct {
		layout     Layout
		body, want string
		told       [2]bool
	}{
		{OpenAI, `{"id":"x","usage":{"prompt_tokens":9,"completion_tokens":12},"service_tier":"flex","choices":[{"message":{"content":"usage"}}]}`,
			`{"service_tier":"flex","usage":{"completion_tokens":12,"prompt_tokens":9}}`, [2]bool{true, true}},
		{OpenAI, `{"object":"list","usage":{"prompt_tokens":8,"total_tokens":8}}`, `{"usage":{"prompt_tokens":8,"total_tokens":8}}`, [2]bool{true, false}},
		{Anthropic, `{"usage":{"input_tokens":1,"output_tokens":9007199254740993,"service_tier":"batch"}}`,
			`{"usage":{"input_tokens":1,"output_tokens":9007199254740993,"service_tier":"batch"}}`, [2]bool{true, true}},
		{Gemini, `{"usageMetadata":{"promptTokenCount":4,"thoughtsTokenCount":2,"trafficType":"ON_DEMAND"}}`,
			`{"usageMetadata":{"promptTokenCount":4,"thoughtsTokenCount":2,"trafficType":"ON_DEMAND"}}`, [2]bool{true, true}},
		{Bedrock, `{"usage":{"inputTokens":3,"outputTokens":0},"performanceConfig":{"latency":"optimized"},"serviceTier":{"type":"priority"}}`,
			`{"performanceConfig":{"latency":"optimized"},"serviceTier":{"type":"priority"},"usage":{"inputTokens":3,"outputTokens":0}}`, [2]bool{true, true}},
		{OpenAI, `{"error":{"message":"no"}}`, `null`, [2]bool{}},
		{OpenAI, `{"usage":null}`, `null`, [2]bool{}},
	} {
		got, err := Whole(tt.layout, []byte(tt.body))
		if err != nil {
			t.Errorf("%s: %v", tt.body, err)
			continue
		}
		usage, err := json.Marshal(got.Usage)
		if err != nil || string(usage) != tt.want || !got.Ended || got.Text != "" || [2]bool{got.ToldInput, got.ToldOutput} != tt.told {
			t.Errorf("%s: %s, %+v, %v", tt.body, usage, got, err)
		}
	}
	for _, bad := range []string{``, `{`, `[]`, `"x"`, `{"usage":7}`, `{"usage":[]}`, `{"usage":"` + strings.Repeat("x", MaxUsageBytes) + `"}`, `{} {}`} {
		if got, err := Whole(OpenAI, []byte(bad)); err == nil || strings.Contains(err.Error(), "xxxx") {
			t.Errorf("%.40s: %+v, %v", bad, got, err)
		}
	}
}

// A chunk of an answer costs a few small allocations, whatever its length.
func TestStreamAllocations(t *testing.T) {
	s := NewStream(OpenAI)
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
		layout, ok := LayoutOf(provider)
		if !ok {
			return
		}
		s := NewStream(layout)
		for _, event := range []string{one, two, one} {
			before, beforeErr := s.Answer()
			if s.Event([]byte(event)) == nil {
				continue
			}
			if after, err := s.Answer(); (err == nil) != (beforeErr == nil) || !reflect.DeepEqual(before, after) {
				t.Fatalf("a bad event changed %+v to %+v", before, after)
			}
		}
		if got, err := s.Answer(); err == nil && (len(got.Text) > MaxTextBytes || !utf8.ValidString(got.Text)) {
			t.Fatalf("%d bytes of text", len(got.Text))
		}
		_, _ = Whole(layout, []byte(one))
	})
}
