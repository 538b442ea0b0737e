package estimator

import "github.com/budgetd/budgetd/quota"

// gemini reads usageMetadata, in camel case or snake case. The live API has
// other names for what was generated.
func (u *usageReader) gemini(usage map[string]any) {
	prompt := u.count(usage, usageField, "promptTokenCount", "prompt_token_count")
	candidates := u.count(usage, usageField, "candidatesTokenCount", "candidates_token_count", "responseTokenCount", "response_token_count")
	thoughts := u.count(usage, usageField, "thoughtsTokenCount", "thoughts_token_count")
	toolUse := u.count(usage, usageField, "toolUsePromptTokenCount", "tool_use_prompt_token_count")
	_, cachedKey := either(usage, "cachedContentTokenCount", "cached_content_token_count")
	cached := u.count(usage, usageField, cachedKey)
	in := u.modalities(usage, "promptTokensDetails", "prompt_tokens_details")
	fromCache := u.modalities(usage, "cacheTokensDetails", "cache_tokens_details")
	out := u.modalities(usage, "candidatesTokensDetails", "candidates_tokens_details", "responseTokensDetails", "response_tokens_details")
	u.prompt(prompt, cached, 0, in, fromCache, usageField+"."+cachedKey)
	u.completion(candidates, out, usageField+".candidatesTokensDetails")
	u.use.Tokens.Input += toolUse // each at most 2^53-1
	u.use.Tokens.Reasoning = thoughts
}

// modalities reads the counts by modality. Text and documents cost what text
// does.
func (u *usageReader) modalities(usage map[string]any, keys ...string) media {
	_, key := either(usage, keys...)
	details, err := listAt(usage, usageField, key)
	u.keep(err)
	if len(details) > maxItems {
		u.keep(invalid(usageField+"."+key, "has more than %d entries", maxItems))
		return media{}
	}
	var m media
	for i, item := range details {
		field := at(usageField+"."+key, i)
		detail, err := asObject(item, field)
		u.keep(err)
		n := u.count(detail, field, "tokenCount", "token_count")
		add := func(to *quota.Tokens) { *to = min(*to+n, quota.Tokens(quota.MaxAmount)) }
		switch modality, _ := detail["modality"].(string); modality {
		case "AUDIO":
			add(&m.audio)
		case "IMAGE":
			add(&m.image)
		case "VIDEO":
			add(&m.video)
		}
	}
	return m
}
