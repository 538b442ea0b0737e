package estimator

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/quota"
)

func TestNormalizeUsage(t *testing.T) {
	for _, tt := range []struct {
		name, provider, usage string
		want                  TokenClasses
	}{
		{"openai chat", "openai",
			`{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100,"prompt_tokens_details":{"cached_tokens":800,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":60,"accepted_prediction_tokens":0}}`,
			TokenClasses{Input: 200, CacheRead: 800, Output: 40, Reasoning: 60}},
		{"openai chat without details", "openai", `{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12,"prompt_tokens_details":null}`,
			TokenClasses{Input: 5, Output: 7}},
		{"openai responses", "openai",
			`{"input_tokens":1000,"input_tokens_details":{"cached_tokens":800},"output_tokens":100,"output_tokens_details":{"reasoning_tokens":64},"total_tokens":1100}`,
			TokenClasses{Input: 200, CacheRead: 800, Output: 36, Reasoning: 64}},
		{"openai embeddings", "openai", `{"prompt_tokens":8,"total_tokens":8}`, TokenClasses{Input: 8}},
		{"deepseek", "deepseek", `{"prompt_tokens":100,"completion_tokens":10,"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":36,"total_tokens":110}`,
			TokenClasses{Input: 36, CacheRead: 64, Output: 10}},
		{"xai: reasoning on top", "xai", `{"prompt_tokens":32,"completion_tokens":9,"total_tokens":135,"completion_tokens_details":{"reasoning_tokens":94}}`,
			TokenClasses{Input: 32, Output: 9, Reasoning: 94}},
		{"anthropic", "anthropic",
			`{"input_tokens":200,"cache_read_input_tokens":800,"cache_creation_input_tokens":50,"output_tokens":100}`,
			TokenClasses{Input: 200, CacheRead: 800, CacheWrite: 50, Output: 100}},
		{"anthropic, cache lives told apart", "anthropic",
			`{"input_tokens":1,"cache_creation_input_tokens":556,"cache_creation":{"ephemeral_5m_input_tokens":456,"ephemeral_1h_input_tokens":100},"output_tokens":3,"service_tier":"standard"}`,
			TokenClasses{Input: 1, CacheWrite: 456, CacheWrite1h: 100, Output: 3}},
		{"gemini", "gemini",
			`{"promptTokenCount":1000,"cachedContentTokenCount":800,"candidatesTokenCount":100,"thoughtsTokenCount":70,"toolUsePromptTokenCount":30,"totalTokenCount":1200}`,
			TokenClasses{Input: 230, CacheRead: 800, Output: 100, Reasoning: 70}},
		{"gemini in snake case", "google", `{"prompt_token_count":10,"candidates_token_count":2,"prompt_tokens_details":[{"modality":"TEXT","token_count":10}]}`,
			TokenClasses{Input: 10, Output: 2}},
		{"an explicit zero is zero", "openai", `{"prompt_tokens":0,"completion_tokens":0}`, TokenClasses{}},
		{"whole floats", "openai", `{"prompt_tokens":1e3,"completion_tokens":2.0}`, TokenClasses{Input: 1000, Output: 2}},
	} {
		got, err := NormalizeUsage(tt.provider, parse(t, tt.usage))
		if err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
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
		{"openai", `{"prompt_tokens":9,"prompt_tokens_details":{"audio_tokens":2}}`, "provider_usage.prompt_tokens_details.audio_tokens"},
		{"openai", `{"prompt_tokens":9,"prompt_tokens_details":7}`, "provider_usage.prompt_tokens_details"},
		{"openai", `{}`, "provider_usage"},
		{"openai", `{"promptTokenCount":5}`, "provider_usage"},
		{"anthropic", `{"prompt_tokens":5}`, "provider_usage"},
		{"anthropic", `{"output_tokens":-3}`, "provider_usage.output_tokens"},
		{"anthropic", `{"cache_creation_input_tokens":1,"cache_creation":{"ephemeral_1h_input_tokens":2}}`, "provider_usage.cache_creation.ephemeral_1h_input_tokens"},
		{"gemini", `{"promptTokenCount":5,"cachedContentTokenCount":6}`, "provider_usage.cachedContentTokenCount"},
		{"gemini", `{"promptTokenCount":5,"promptTokensDetails":[{"modality":"AUDIO","tokenCount":5}]}`, "provider_usage.promptTokensDetails[0]"},
		{"gemini", `{"candidatesTokenCount":5,"candidatesTokensDetails":[{"modality":"IMAGE","tokenCount":5}]}`, "provider_usage.candidatesTokensDetails[0]"},
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
	classes, err := NormalizeUsage("openai", parse(t, `{"prompt_tokens":1000,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":800}}`))
	if err != nil {
		t.Fatal(err)
	}
	price := Price{Base: Rates{Input: 3 * usd, CacheRead: usd * 3 / 10, Output: 15 * usd}}
	if cost, err := price.Cost(Use{Tokens: classes}); err != nil || cost != 2_340_000 {
		t.Errorf("cost %d, %v; want 2,340,000 nano-USD", cost, err)
	}
	amounts, err := classes.Amounts()
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
		classes, err := NormalizeUsage(provider, usage)
		if err != nil {
			if !errors.Is(err, ErrInvalidCall) {
				t.Errorf("untyped error %v", err)
			}
			return
		}
		amounts, err := classes.Amounts()
		if err != nil {
			t.Fatalf("classes out of range: %+v", classes)
		}
		if strings.EqualFold(provider, "openai") { // nothing is lost or counted twice
			for key, meter := range map[string]quota.Meter{"prompt_tokens": quota.MeterInputTokens} {
				n, ok := usage[key].(json.Number)
				if whole, err := n.Int64(); ok && err == nil && amounts[meter] != quota.Amount(whole) {
					t.Errorf("%s %d became %d %s", key, whole, amounts[meter], meter)
				}
			}
		}
	})
}
