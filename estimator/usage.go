package estimator

import (
	"strings"

	"github.com/budgetd/budgetd/quota"
)

const usageField = "provider_usage"

// NormalizeUsage turns a provider's own usage object into disjoint classes.
//
//   - OpenAI chat completions and all that serve its layout: prompt_tokens
//     includes prompt_tokens_details.cached_tokens; completion_tokens includes
//     completion_tokens_details.reasoning_tokens, unless total_tokens shows
//     that they come on top (xAI).
//   - OpenAI responses: the same with input_tokens and output_tokens.
//   - Anthropic: input_tokens excludes cache_read_input_tokens and
//     cache_creation_input_tokens; of the latter, cache_creation names the
//     one-hour part. output_tokens includes thinking, which is not told apart.
//   - Gemini usageMetadata: promptTokenCount includes
//     cachedContentTokenCount; toolUsePromptTokenCount comes on top;
//     thoughtsTokenCount is outside candidatesTokenCount.
//
// An absent count is zero, but an object without any count of its layout is
// refused, so that a wrong object never means "nothing was used". A count that
// is no whole number between 0 and quota.MaxAmount, a part above its whole,
// and audio tokens, whose price is not that of text, are refused with a
// [CallError] that names the field.
func NormalizeUsage(provider string, usage map[string]any) (TokenClasses, error) {
	f, err := formatOf(provider)
	if err != nil {
		return TokenClasses{}, err
	}
	u := usageReader{}
	var classes TokenClasses
	switch f {
	case formatAnthropic:
		classes = u.anthropic(usage)
	case formatGemini:
		classes = u.gemini(usage)
	default:
		classes = u.openAI(usage)
	}
	if u.err != nil {
		return TokenClasses{}, u.err
	}
	if u.stated == 0 {
		return TokenClasses{}, invalid(usageField, "has none of the token counts of an %s usage object", f)
	}
	if _, err := classes.Amounts(); err != nil { // every sum is in range
		return TokenClasses{}, err
	}
	return classes, nil
}

// usageReader reads counts and keeps the first error.
type usageReader struct {
	stated int // counts found
	err    error
}

// count reads the first of the keys that is present.
func (u *usageReader) count(object map[string]any, field string, keys ...string) quota.Tokens {
	_, key := either(object, keys...)
	n, ok, err := tokensAt(object, field, key)
	if err != nil && u.err == nil {
		u.err = err
	}
	if ok {
		u.stated++
	}
	return n
}

func (u *usageReader) object(object map[string]any, field string, keys ...string) (map[string]any, string) {
	value, key := either(object, keys...)
	out, err := asObject(value, field+"."+key)
	if err != nil && u.err == nil {
		u.err = err
	}
	return out, field + "." + key
}

// less takes a part out of its whole.
func (u *usageReader) less(whole, part quota.Tokens, field, of string) quota.Tokens {
	if part > whole && u.err == nil {
		u.err = invalid(field, "%d is more than the %d of %s, which include it", int64(part), int64(whole), of)
		return 0
	}
	return whole - part
}

// noAudio refuses audio tokens.
func (u *usageReader) noAudio(details map[string]any, field string) {
	if u.count(details, field, "audio_tokens") > 0 && u.err == nil {
		u.err = invalid(field+".audio_tokens", "audio has a price of its own, which the catalogue does not hold; report amounts instead")
	}
}

func (u *usageReader) openAI(usage map[string]any) TokenClasses {
	prompt := u.count(usage, usageField, "prompt_tokens", "input_tokens")
	completion := u.count(usage, usageField, "completion_tokens", "output_tokens")
	if u.stated == 0 {
		return TokenClasses{}
	}
	inDetails, inField := u.object(usage, usageField, "prompt_tokens_details", "input_tokens_details")
	outDetails, outField := u.object(usage, usageField, "completion_tokens_details", "output_tokens_details")
	u.noAudio(inDetails, inField)
	u.noAudio(outDetails, outField)
	cached := u.count(inDetails, inField, "cached_tokens")
	if _, stated := inDetails["cached_tokens"]; !stated { // DeepSeek's own name
		cached = u.count(usage, usageField, "prompt_cache_hit_tokens")
	}
	written := u.count(inDetails, inField, "cache_write_tokens", "cache_creation_tokens")
	reasoning := u.count(outDetails, outField, "reasoning_tokens")
	input := u.less(prompt, cached, inField+".cached_tokens", "prompt tokens")
	input = u.less(input, written, inField+".cache_write_tokens", "prompt tokens that were not cached")
	classes := TokenClasses{Input: input, CacheRead: cached, CacheWrite: written, Output: completion, Reasoning: reasoning}
	// xAI reports reasoning beside the completion; its total tells.
	total := u.count(usage, usageField, "total_tokens")
	if reasoning == 0 || total != prompt+completion+reasoning {
		classes.Output = u.less(completion, reasoning, outField+".reasoning_tokens", "completion tokens")
	}
	return classes
}

func (u *usageReader) anthropic(usage map[string]any) TokenClasses {
	classes := TokenClasses{
		Input:      u.count(usage, usageField, "input_tokens"),
		CacheRead:  u.count(usage, usageField, "cache_read_input_tokens"),
		CacheWrite: u.count(usage, usageField, "cache_creation_input_tokens"),
		Output:     u.count(usage, usageField, "output_tokens"),
	}
	creation, field := u.object(usage, usageField, "cache_creation")
	hour := u.count(creation, field, "ephemeral_1h_input_tokens")
	fiveMinutes := u.count(creation, field, "ephemeral_5m_input_tokens")
	if _, stated := usage["cache_creation_input_tokens"]; !stated {
		classes.CacheWrite = fiveMinutes + hour // each at most 2^53-1
	}
	classes.CacheWrite = u.less(classes.CacheWrite, hour, field+".ephemeral_1h_input_tokens", "cache_creation_input_tokens")
	classes.CacheWrite1h = hour
	return classes
}

func (u *usageReader) gemini(usage map[string]any) TokenClasses {
	prompt := u.count(usage, usageField, "promptTokenCount", "prompt_token_count")
	candidates := u.count(usage, usageField, "candidatesTokenCount", "candidates_token_count")
	thoughts := u.count(usage, usageField, "thoughtsTokenCount", "thoughts_token_count")
	toolUse := u.count(usage, usageField, "toolUsePromptTokenCount", "tool_use_prompt_token_count")
	_, cachedKey := either(usage, "cachedContentTokenCount", "cached_content_token_count")
	cached := u.count(usage, usageField, cachedKey)
	for _, key := range []string{"promptTokensDetails", "prompt_tokens_details", "candidatesTokensDetails", "candidates_tokens_details"} {
		u.textOnly(usage, key)
	}
	return TokenClasses{
		Input:     u.less(prompt, cached, usageField+"."+cachedKey, "prompt tokens") + toolUse, // each at most 2^53-1
		CacheRead: cached,
		Output:    candidates,
		Reasoning: thoughts,
	}
}

// textOnly refuses the modalities whose price is not that of text.
func (u *usageReader) textOnly(usage map[string]any, key string) {
	details, err := listAt(usage, usageField, key)
	if err != nil && u.err == nil {
		u.err = err
	}
	for i, item := range details {
		field := at(usageField+"."+key, i)
		detail, err := asObject(item, field)
		if err != nil && u.err == nil {
			u.err = err
		}
		modality, _ := detail["modality"].(string)
		output := strings.HasPrefix(key, "candidates")
		if (modality == "AUDIO" || (output && modality != "TEXT" && modality != "")) &&
			u.count(detail, field, "tokenCount", "token_count") > 0 && u.err == nil {
			u.err = invalid(field, "%s has a price of its own, which the catalogue does not hold; report amounts instead", quoted(modality))
		}
	}
}
