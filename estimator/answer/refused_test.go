package answer

import "testing"

// TestRefused: an error alone is one, beside a usage or a piece of an answer it is not.
func TestRefused(t *testing.T) {
	for _, example := range []struct {
		layout Layout
		events []string
		want   bool
	}{
		{OpenAI, []string{`{"error":{"message":"no"}}`}, true},
		{OpenAI, []string{`{"error":""}`}, false},
		{OpenAI, []string{`{"choices":[{"delta":{"content":"Hi"}}]}`, `{"error":{"message":"no"}}`}, false},
		{OpenAI, []string{`{"error":{"message":"no"},"usage":{"prompt_tokens":1}}`}, false},
		{OpenAI, []string{`{"choices":[{"delta":{"content":"the \"error\""}}]}`}, false},
		{Anthropic, []string{`{"type":"ping"}`, `{"type":"error","error":{"type":"overloaded_error"}}`}, true},
		{Anthropic, []string{`{"type":"message_start","message":{"usage":{"input_tokens":25}}}`, `{"type":"error","error":{}}`}, false},
		{Gemini, []string{`{"error":{"code":503}}`}, true},
		{OpenAI, nil, false},
	} {
		s := NewStream(example.layout)
		for _, event := range example.events {
			if err := s.Event([]byte(event)); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := s.Answer(); err != nil || got.Refused != example.want {
			t.Errorf("%s: %+v, %v", example.events, got, err)
		}
	}
	s := NewStream(Bedrock)
	if s.Fail(); !must(s.Answer()).Refused {
		t.Error("an error beside the data is none")
	}
}

func must(a Answer, err error) Answer {
	if err != nil {
		panic(err)
	}
	return a
}
