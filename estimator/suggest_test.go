package estimator

import (
	"errors"
	"strings"
	"testing"
)

// A model without a price is told of the name that may have been meant, of the
// same provider, or of the provider that has it.
func TestUnknownModelSuggests(t *testing.T) {
	e := pricedBy(t, Config{}, stated("acme", "our-large-model", anyDay, usd))
	for _, tt := range []struct{ provider, model, near, elsewhere string }{
		{"openai", "gpt-4o-minni", "gpt-4o-mini", ""},
		{"openai", "gpt4o-mini", "gpt-4o-mini", ""},
		{"azure", "GPT4o-mini", "gpt-4o-mini", ""},
		{"", "gpt-4o-minj", "gpt-4o-mini", ""},
		{"anthropic", "claude-sonet-4-5", "claude-sonnet-4-5", ""},
		{"gemini", "models/gemini-2.5-flsh", "gemini-2.5-flash", ""},
		{"acme", "our-large-modell", "our-large-model", ""},
		{"openai", "claude-sonnet-4-5", "", "anthropic"},
		{"our-own", "gpt-4o", "", "openai"},
		{"openai", "something-else-altogether", "", ""},
		{"openai", strings.Repeat("x", 256), "", ""},
	} {
		_, err := e.ModelAt(tt.provider, tt.model, anyDay)
		var unknown *UnknownModelError
		if !errors.As(err, &unknown) || unknown.Near != tt.near || unknown.Elsewhere != tt.elsewhere {
			t.Errorf("%s %s: %+v", tt.provider, tt.model, err)
			continue
		}
		if tt.near != "" && !strings.Contains(err.Error(), `did you mean "`+tt.near+`"?`) {
			t.Error(err)
		}
	}
}

func BenchmarkUnknownModel(b *testing.B) {
	e, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_, _ = e.ModelAt("", "clawde-sonet-four-5-latest", anyDay)
	}
}
