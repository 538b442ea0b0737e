package estimator

import "github.com/budgetd/budgetd/estimator/answer"

// openAI reads the usage of chat completions, responses, completions,
// embeddings and transcriptions, and of the hosts that serve their layout:
//
//   - xAI reports reasoning beside the completion, and its total tells; sources
//     of its live search are billed one by one (num_sources_used).
//   - DeepSeek and Moonshot have names of their own for what was cached.
//   - OpenRouter names its searches as Anthropic does.
//   - Mistral adds the seconds of sound in the prompt.
//   - Some hosts put reasoning_tokens beside the counts.
//
// Realtime answers tell what of the cached part was sound and pictures.
func (u *usageReader) openAI(usage map[string]any) {
	if kind, _ := usage["type"].(string); kind == "duration" { // a transcription by the minute
		u.use.Units.Seconds = u.seconds(usage, usageField, "seconds")
		if usage["seconds"] != nil {
			u.stated++
		}
		return
	}
	prompt := u.count(usage, usageField, "prompt_tokens", "input_tokens")
	completion := u.count(usage, usageField, "completion_tokens", "output_tokens")
	if u.stated == 0 {
		return
	}
	in, inField := u.object(usage, usageField, "prompt_tokens_details", "input_tokens_details", "input_token_details")
	out, outField := u.object(usage, usageField, "completion_tokens_details", "output_tokens_details", "output_token_details")
	cached, stated := u.maybe(in, inField, "cached_tokens")
	if !stated {
		cached = u.count(usage, usageField, "prompt_cache_hit_tokens", "cached_tokens", "cached_prompt_text_tokens")
	}
	written := u.count(in, inField, "cache_write_tokens", "cache_creation_tokens")
	fromCache, cacheField := u.object(in, inField, "cached_tokens_details")
	u.prompt(prompt, cached, written, u.mediaOf(in, inField), u.mediaOf(fromCache, cacheField), inField+".cached_tokens")

	reasoning, stated := u.maybe(out, outField, "reasoning_tokens")
	if !stated {
		reasoning = u.count(usage, usageField, "reasoning_tokens")
	}
	total := u.count(usage, usageField, "total_tokens")
	if reasoning == 0 || total != prompt+completion+reasoning {
		completion = u.less(completion, reasoning, outField+".reasoning_tokens", "completion tokens")
	}
	u.use.Tokens.Reasoning = reasoning
	u.completion(completion, u.mediaOf(out, outField), outField)

	tools, toolsField := u.object(usage, usageField, "server_tool_use")
	u.use.Units.Searches = Quantity(u.count(usage, usageField, "num_sources_used", "num_search_queries") + u.count(tools, toolsField, "web_search_requests"))
	u.use.Units.Seconds = u.seconds(usage, usageField, "prompt_audio_seconds")
}

// mediaOf reads the media of a details object.
func (u *usageReader) mediaOf(details map[string]any, field string) media {
	return media{
		audio: u.count(details, field, "audio_tokens"),
		image: u.count(details, field, "image_tokens"),
		video: u.count(details, field, "video_tokens"),
	}
}

// anthropic reads the usage of messages. The counts of message_delta are
// cumulative, so that the last object that names a count has it. A compaction
// of the context is outside the counts, and is billed as well: it is an
// iteration of its own.
func (u *usageReader) anthropic(usage map[string]any) {
	u.extract(answer.Anthropic, usage, usageField)
	iterations, err := listAt(usage, usageField, "iterations")
	u.keep(err)
	if len(iterations) > maxItems {
		u.keep(invalid(usageField+".iterations", "has more than %d entries", maxItems))
		return
	}
	for i, item := range iterations {
		field := at(usageField+".iterations", i)
		iteration, err := asObject(item, field)
		u.keep(err)
		if kind, _ := iteration["type"].(string); kind == "compaction" {
			u.extract(answer.Anthropic, iteration, field)
		}
		if u.keep(u.use.Check()); u.err != nil {
			return
		}
	}
	tools, field := u.object(usage, usageField, "server_tool_use")
	u.use.Units.Searches = Quantity(u.count(tools, field, "web_search_requests"))
}
