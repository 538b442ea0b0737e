package transport

import (
	"net/http"
	"testing"
)

// A call for a provider that is known by other means than its host has that
// provider's name and layout, wherever it goes, and no other layout's endpoints.
func TestForProvider(t *testing.T) {
	tr := New(nil)
	for _, example := range []struct {
		provider, url, model string
		ok                   bool
		output               string // where the output is bounded first
		asks                 bool
	}{
		{"llama-a", "http://10.0.0.7:8000/v1/chat/completions", "", true, "max_completion_tokens", true},
		{"llama-b", "http://10.0.0.7:8000/v1/chat/completions", "", true, "max_completion_tokens", true},
		{"llama-a", "http://10.0.0.7:8000/v1/messages", "", false, "", false},
		{"groq", "http://gateway/openai/v1/chat/completions", "", true, "max_tokens", false},
		{"fast", "https://api.groq.com/openai/v1/chat/completions", "", true, "max_tokens", false},
		{"fast", "https://api.groq.com/openai/v1/responses", "", true, "max_output_tokens", false},
		{"my-azure", "https://x.openai.azure.com/openai/deployments/mine/chat/completions", "mine", true, "max_completion_tokens", true},
		{"openai", "https://api.groq.com/v1/embeddings", "", true, "", false},
		{"anthropic", "http://gateway/v1/messages", "", true, "max_tokens", false},
		{"anthropic", "http://gateway/v1/chat/completions", "", false, "", false},
		{"gemini", "http://gateway/v1beta/models/gemini-2.5-flash:generateContent", "gemini-2.5-flash", true, "generationConfig.maxOutputTokens", false},
	} {
		request, err := http.NewRequestWithContext(ForProvider(t.Context(), example.provider), http.MethodPost, example.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		endpoint, model := tr.recognise(request)
		told, ok := tr.Recognise(request)
		if ok != example.ok || (endpoint != nil) != example.ok || model != example.model {
			t.Errorf("%s at %s: %v, model %q", example.provider, example.url, ok, model)
			continue
		}
		if !ok {
			continue
		}
		output := ""
		if len(told.OutputFields) > 0 {
			output = told.OutputFields[0]
		}
		if told.Provider != example.provider || output != example.output || told.AsksUsage != example.asks {
			t.Errorf("%s at %s: %+v", example.provider, example.url, told)
		}
	}
}
