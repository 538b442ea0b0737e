package spelling_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/internal/spelling"
)

func TestNearest(t *testing.T) {
	names := []string{"gpt-4o", "gpt-4o-mini", "claude-sonnet-4-5", "o3"}
	for _, example := range []struct {
		given string
		most  int
		want  string
	}{
		{"gpt-4o-mini", 2, "gpt-4o-mini"},
		{"GPT-4O-Mini", 0, "gpt-4o-mini"},
		{"gpt4o-mini", 2, "gpt-4o-mini"},
		{"gpt-40", 2, "gpt-4o"},
		{"gtp-4o", 2, "gpt-4o"},
		{"gtp-4o", 1, ""},
		{"claude-sonnet-45", 1, "claude-sonnet-4-5"},
		{"claude", 3, ""},
		{"", 3, ""},
		{"x", 3, ""}, // everything short is near to it
		{"o4", 1, "o3"},
		{strings.Repeat("x", 1<<20), 3, ""},
	} {
		if got := spelling.Nearest(example.given, slices.Values(names), example.most); got != example.want {
			t.Errorf("%.20q within %d: %q, want %q", example.given, example.most, got, example.want)
		}
	}
}
