package estimator

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/quota"
)

// wireUsage is one usage object of a provider's documentation or answers.
type wireUsage struct {
	Name     string                  `json:"name"`
	Provider string                  `json:"provider"`
	Usage    json.RawMessage         `json:"usage"`
	Tokens   map[string]quota.Tokens `json:"tokens"`
	Searches Quantity                `json:"searches"`
	Seconds  Milliseconds            `json:"seconds_ms"`
	Tier     string                  `json:"tier"`
	Speed    string                  `json:"speed"`
}

func TestNormalizeUsage(t *testing.T) {
	wireFiles(t, "usage", func(t *testing.T, examples []wireUsage) {
		for _, example := range examples {
			var counts [numberOfClasses]quota.Tokens
			for i, name := range classNames {
				counts[i] = example.Tokens[name]
				delete(example.Tokens, name)
			}
			if len(example.Tokens) > 0 {
				t.Fatalf("%s: no such classes as %v", example.Name, example.Tokens)
			}
			want := Use{Tokens: TokenClassesOf(counts), Units: Units{Searches: example.Searches, Seconds: example.Seconds}, Tier: example.Tier, Speed: example.Speed}
			got, err := NormalizeUsage(example.Provider, parse(t, string(example.Usage)))
			if err != nil || got != want {
				t.Errorf("%s: %+v, %v; want %+v", example.Name, got, err, want)
			}
		}
	})
	for name, usage := range map[string]string{"an explicit zero is zero": `{"prompt_tokens":0,"completion_tokens":0}`, "null details": `{"prompt_tokens":0,"prompt_tokens_details":null}`} {
		if got, err := NormalizeUsage("openai", parse(t, usage)); err != nil || got != (Use{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := NormalizeUsage("openai", parse(t, `{"prompt_tokens":1e3,"completion_tokens":2.0,"service_tier":"a tier; with spaces"}`)); err != nil || got != (Use{Tokens: TokenClasses{Input: 1000, Output: 2}, Tier: "other"}) {
		t.Errorf("whole floats, and no tier's name: %+v, %v", got, err)
	}
}

func TestNormalizeUsageRefuses(t *testing.T) {
	for _, tt := range []struct{ provider, usage, field string }{
		{"openai", `{"prompt_tokens":-1,"completion_tokens":1}`, "provider_usage.prompt_tokens"},
		{"openai", `{"prompt_tokens":1.5,"completion_tokens":1}`, "provider_usage.prompt_tokens"},
		{"openai", `{"prompt_tokens":"7","completion_tokens":1}`, "provider_usage.prompt_tokens"},
		{"openai", `{"prompt_tokens":9007199254740992,"completion_tokens":1}`, "provider_usage.prompt_tokens"},
		{"openai", `{"prompt_tokens":1e400,"completion_tokens":1}`, "provider_usage.prompt_tokens"},
		{"openai", `{"prompt_tokens":9223372036854775808}`, "provider_usage.prompt_tokens"},
		{"openai", `{"prompt_tokens":9007199254740991,"completion_tokens":1}`, "tokens"},
		{"openai", `{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":2}}`, "provider_usage.prompt_tokens_details.cached_tokens"},
		{"openai", `{"prompt_tokens":1,"completion_tokens":1,"completion_tokens_details":{"reasoning_tokens":2}}`, "provider_usage.completion_tokens_details.reasoning_tokens"},
		{"openai", `{"prompt_tokens":9,"prompt_tokens_details":7}`, "provider_usage.prompt_tokens_details"},
		{"openai", `{}`, "provider_usage"},
		{"openai", `{"promptTokenCount":5}`, "provider_usage"},
		{"anthropic", `{"prompt_tokens":5}`, "provider_usage"},
		{"anthropic", `{"output_tokens":-3}`, "provider_usage.output_tokens"},
		{"anthropic", `{"cache_creation_input_tokens":1,"cache_creation":{"ephemeral_1h_input_tokens":2}}`, "provider_usage.cache_creation.ephemeral_1h_input_tokens"},
		{"gemini", `{"promptTokenCount":5,"cachedContentTokenCount":6}`, "provider_usage.cachedContentTokenCount"},
		{"gemini", `{"promptTokenCount":5,"promptTokensDetails":[{"modality":"AUDIO","tokenCount":6}]}`, "provider_usage.cachedContentTokenCount"},
		{"gemini", `{"candidatesTokenCount":5,"candidatesTokensDetails":[{"modality":"IMAGE","tokenCount":6}]}`, "provider_usage.candidatesTokensDetails"},
		{"gemini", `{"promptTokenCount":5,"promptTokensDetails":[7]}`, "provider_usage.promptTokensDetails[0]"},
		{"openai", `{"type":"duration","seconds":-1}`, "provider_usage.seconds"},
		{"openai", `{"usage":{"prompt_tokens":-1}}`, "provider_usage.prompt_tokens"},
		{"anthropic", `{"output_tokens":1,"output_tokens_details":{"thinking_tokens":2}}`, "provider_usage.output_tokens_details.thinking_tokens"},
		{"bedrock", `{"inputTokens":"1"}`, "provider_usage.inputTokens"},
		{"bedrock", `{"inputTokens":1,"cacheDetails":[{"ttl":"1h","inputTokens":2}]}`, "provider_usage.cacheDetails"},
		{"bedrock", `{"input_tokens":1}`, "provider_usage"},
		{"nobody", `{"prompt_tokens":1}`, "provider"},
		{"", `{"prompt_tokens":1}`, "provider"},
	} {
		_, err := NormalizeUsage(tt.provider, parse(t, tt.usage))
		var call *CallError
		if !errors.As(err, &call) || call.Field != tt.field || !errors.Is(err, ErrInvalidCall) {
			t.Errorf("%s %s: %v, want a refusal of %s", tt.provider, tt.usage, err, tt.field)
		}
	}
	for _, value := range []any{math.NaN(), math.Inf(1), math.Inf(-1), true, []any{}} {
		if _, err := NormalizeUsage("openai", map[string]any{"prompt_tokens": value}); err == nil {
			t.Errorf("prompt_tokens of %v was taken", value)
		}
	}
}

// Cached tokens are charged once, at the cache's price (seen charged twice
// elsewhere).
func TestCachedTokensAreChargedOnce(t *testing.T) {
	use, err := NormalizeUsage("openai", parse(t, `{"prompt_tokens":1000,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":800}}`))
	if err != nil {
		t.Fatal(err)
	}
	price := Price{Base: Rates{Input: 3 * usd, CacheRead: usd * 3 / 10, Output: 15 * usd}}
	if cost, err := price.Cost(use); err != nil || cost != 2_340_000 {
		t.Errorf("cost %d, %v; want 2,340,000 nano-USD", cost, err)
	}
	amounts, err := use.Tokens.Amounts()
	if err != nil {
		t.Fatal(err)
	}
	want := quota.Amounts{quota.MeterTokens: 1100, quota.MeterInputTokens: 1000, quota.MeterOutputTokens: 100}
	for meter, n := range want {
		if amounts[meter] != n {
			t.Errorf("%s: %d, want %d", meter, amounts[meter], n)
		}
	}
	if len(amounts) != len(want) {
		t.Errorf("amounts %v, want %v", amounts, want)
	}
}

func FuzzNormalizeUsage(f *testing.F) {
	f.Add("openai", `{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":2}}`)
	f.Add("anthropic", `{"input_tokens":1,"cache_read_input_tokens":2,"cache_creation_input_tokens":3,"cache_creation":{"ephemeral_1h_input_tokens":1},"output_tokens":4}`)
	f.Add("gemini", `{"promptTokenCount":4,"cachedContentTokenCount":1,"candidatesTokenCount":2,"thoughtsTokenCount":3}`)
	f.Add("openai", `{"prompt_tokens":1e308}`)
	f.Fuzz(func(t *testing.T, provider, text string) {
		usage, err := ParseJSON("provider_usage", []byte(text))
		if err != nil {
			return
		}
		use, err := NormalizeUsage(provider, usage)
		if err != nil {
			if !errors.Is(err, ErrInvalidCall) {
				t.Errorf("untyped error %v", err)
			}
			return
		}
		amounts, err := use.Tokens.Amounts()
		if err != nil || use.Check() != nil {
			t.Fatalf("out of range: %+v", use)
		}
		if strings.EqualFold(provider, "openai") && usage["usage"] == nil && usage["usageMetadata"] == nil && usage["usage_metadata"] == nil && usage["type"] == nil { // nothing is lost or counted twice
			for key, meter := range map[string]quota.Meter{"prompt_tokens": quota.MeterInputTokens} {
				n, ok := usage[key].(json.Number)
				if whole, err := n.Int64(); ok && err == nil && amounts[meter] != quota.Amount(whole) {
					t.Errorf("%s %d became %d %s", key, whole, amounts[meter], meter)
				}
			}
		}
	})
}
