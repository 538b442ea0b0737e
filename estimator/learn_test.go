package estimator

import (
	"math"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/quota"
)

// What providers counted for calls that a rule had to count lowers the next
// estimates of that model, and of no other.
func TestEstimateLearnsFromSettledCalls(t *testing.T) {
	e := newEstimator(t, Config{})
	ask := func(model string) Estimate {
		return estimate(t, e, Call{Model: model, Prompt: strings.Repeat("A budget is a promise. ", 100), MaxOutputTokens: tokens(10)})
	}
	stated := ask("claude-sonnet-4-5")
	if stated.Method != "rule/claude" || stated.RuleInput != stated.Input.Ceiling || stated.RuleInput < 500 {
		t.Fatalf("%+v", stated)
	}
	at := anyDay
	for range 300 {
		e.Learn(stated.Price.Provider, stated.Price.Model, stated.RuleInput, stated.RuleInput*6/10, at)
	}
	got := ask("claude-sonnet-4-5")
	if got.Method != "rule/claude learned" || got.RuleInput != stated.RuleInput {
		t.Errorf("%s with %d tokens by the rule, want rule/claude learned with %d", got.Method, got.RuleInput, stated.RuleInput)
	}
	// 0.6, to the bucket of 1 percent, and 5 percent.
	if share := float64(got.Input.Ceiling) / float64(stated.Input.Ceiling); share < 0.62 || share > 0.65 {
		t.Errorf("the ceiling is %g of the rule's, want about 0.63", share)
	}
	if share := float64(got.Input.Expected) / float64(stated.Input.Ceiling); math.Abs(share-0.6) > 0.01 {
		t.Errorf("the expected figure is %g of the rule's ceiling, want 0.6", share)
	}
	var sum Figures
	for _, part := range got.Parts {
		sum = sum.plus(part.Tokens)
		if !strings.HasSuffix(part.Method, " learned") {
			t.Errorf("the part %s goes by %s", part.Kind, part.Method)
		}
	}
	if sum != got.Input || got.Cost >= stated.Cost || got.Input.Floor > got.Input.Expected || got.Input.Expected > got.Input.Ceiling {
		t.Errorf("the parts come to %+v, the input is %+v at %d", sum, got.Input, got.Cost)
	}
	for _, model := range []string{"claude-opus-4-5", "gemini-2.5-flash", "gpt-4o"} {
		if got := ask(model); strings.Contains(got.Method, "learned") {
			t.Errorf("%s goes by %s", model, got.Method)
		}
	}
	// One call above its ceiling, and the next have more.
	e.Learn(stated.Price.Provider, stated.Price.Model, stated.RuleInput, stated.RuleInput*12/10, at)
	if got := ask("claude-sonnet-4-5"); got.Input.Ceiling < stated.Input.Ceiling*12/10 {
		t.Errorf("after an under-count the ceiling is %d, below the %d of that call", got.Input.Ceiling, stated.Input.Ceiling*12/10)
	}
}

func TestOnlyInputByARuleAloneIsLearnedFrom(t *testing.T) {
	e := newEstimator(t, Config{})
	text := strings.Repeat("word ", 500)
	for name, call := range map[string]Call{
		"a public encoding":  {Model: "gpt-4o", Prompt: text},
		"the caller's count": {Model: "claude-sonnet-4-5", InputTokens: tokens(1000)},
		"too little":         {Model: "claude-sonnet-4-5", Prompt: "Hi"},
		"an image": {Provider: "anthropic", ProviderRequest: map[string]any{"model": "claude-sonnet-4-5", "messages": []any{map[string]any{"role": "user", "content": []any{
			map[string]any{"type": "text", "text": text}, map[string]any{"type": "image", "source": map[string]any{"type": "url", "url": "https://example.com/a.png"}},
		}}}}},
	} {
		call.MaxOutputTokens = tokens(1)
		if got := estimate(t, e, call); got.RuleInput != 0 {
			t.Errorf("%s: %d tokens to learn from, by %s", name, got.RuleInput, got.Method)
		}
	}
	got := estimate(t, e, Call{Provider: "anthropic", MaxOutputTokens: tokens(1), ProviderRequest: map[string]any{
		"model": "claude-sonnet-4-5", "system": text, "messages": []any{map[string]any{"role": "user", "content": text}},
		"tools": []any{map[string]any{"name": "f", "input_schema": map[string]any{"type": "object"}}},
	}})
	if got.RuleInput != got.Input.Ceiling || got.RuleInput < quota.Tokens(1000) {
		t.Errorf("text and tools: %d tokens to learn from, of %d", got.RuleInput, got.Input.Ceiling)
	}
}
