package estimator

import "github.com/budgetd/budgetd/quota"

// openAIKnobs are the fields of OpenAI bodies (chat completions, responses,
// completions, embeddings) that are read by name or carry no input.
var openAIKnobs = set(`
	model messages input instructions prompt tools functions tool_choice function_call response_format text
	max_tokens max_completion_tokens max_output_tokens n best_of prediction suffix
	temperature top_p top_k min_p frequency_penalty presence_penalty repetition_penalty logit_bias logprobs top_logprobs
	stop seed stream stream_options user metadata store parallel_tool_calls max_tool_calls reasoning reasoning_effort
	verbosity service_tier modalities safety_identifier prompt_cache_key prompt_cache_retention truncation include
	background echo encoding_format dimensions random_seed safe_prompt
	previous_response_id conversation web_search_options audio`)

// readOpenAI reads chat completions (messages), responses (input,
// instructions), completions (prompt) and embeddings (input) bodies.
func (t *tally) readOpenAI(body map[string]any, mode Mode) error {
	for _, key := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens"} {
		n, ok, err := tokensAt(body, requestField, key)
		if err != nil {
			return err
		}
		if ok && (t.maxOutput == nil || *t.maxOutput < n) {
			t.maxOutput = &n
		}
	}
	for _, key := range []string{"n", "best_of"} { // every choice of best_of is billed
		n, _, err := tokensAt(body, requestField, key)
		if err != nil {
			return err
		}
		t.choices = max(t.choices, int64(n))
	}
	if err := t.openAIPrompts(body); err != nil {
		return err
	}
	if t.count == nil {
		return nil
	}

	if body["web_search_options"] != nil {
		return refusePart(requestField+".web_search_options", "what web_search_options adds")
	}
	for _, key := range []string{"previous_response_id", "conversation"} {
		if body[key] != nil {
			if err := t.stored(requestField+"."+key, "what "+key+" adds", KindStored); err != nil {
				return err
			}
		}
	}
	if _, ok := body["prompt"].(map[string]any); ok {
		if err := t.stored(requestField+".prompt", "a stored prompt", KindStored); err != nil {
			return err
		}
	}
	switch {
	case body["messages"] != nil:
		t.isChat = true
		messages, err := listAt(body, requestField, "messages")
		if err != nil {
			return err
		}
		if err := t.openAIMessages(requestField+".messages", messages); err != nil {
			return err
		}
	case body["input"] != nil && mode == ModeEmbedding, isPlain(body["prompt"]):
		key := "prompt"
		if body["input"] != nil {
			key = "input"
		}
		if err := t.plainInput(requestField+"."+key, body[key]); err != nil {
			return err
		}
		suffix, err := stringAt(body, requestField, "suffix")
		if err != nil {
			return err
		}
		if err := t.text(requestField+".suffix", suffix); err != nil {
			return err
		}
	case body["input"] != nil || body["instructions"] != nil || body["prompt"] != nil:
		t.isChat = true
		if err := t.responsesInput(body); err != nil {
			return err
		}
	default:
		return invalid(requestField, "has none of messages, input or prompt")
	}

	for _, key := range []string{"tools", "functions"} {
		tools, err := listAt(body, requestField, key)
		if err != nil {
			return err
		}
		if err := t.openAITools(requestField+"."+key, tools); err != nil {
			return err
		}
	}
	// A schema that the answer must follow is part of the input.
	for _, key := range []string{"response_format", "text"} {
		if err := t.json(requestField+"."+key, body[key]); err != nil {
			return err
		}
	}
	return t.rest(body, openAIKnobs)
}

// isPlain says whether a prompt is text or token numbers, and not one that the
// provider stores.
func isPlain(prompt any) bool {
	_, stored := prompt.(map[string]any)
	return prompt != nil && !stored
}

// openAIPrompts counts the separate prompts of a completions body.
func (t *tally) openAIPrompts(body map[string]any) error {
	list, ok := body["prompt"].([]any)
	if !ok || len(list) == 0 {
		return nil
	}
	switch list[0].(type) {
	case string, []any:
		t.prompts = int64(len(list)) // token numbers are one prompt
	}
	return nil
}

// plainInput counts a string, a list of strings, a list of token numbers or a
// list of such lists.
func (t *tally) plainInput(field string, value any) error {
	switch v := value.(type) {
	case string:
		return t.text(field, v)
	case []any:
		for i, item := range v {
			switch x := item.(type) {
			case string:
				if err := t.item(at(field, i)); err != nil {
					return err
				}
				if err := t.text(at(field, i), x); err != nil {
					return err
				}
			case []any:
				t.numbers(len(x))
			default:
				if _, err := wholeNumber(item); err != nil {
					return invalid(at(field, i), "must be text, a token number or a list of token numbers")
				}
				t.numbers(1)
			}
		}
		return nil
	default:
		return invalid(field, "must be text or a list")
	}
}

// numbers counts token numbers, which are tokens already.
func (t *tally) numbers(n int) {
	if t.count != nil {
		t.add(KindStated, int64(n), exactly(quota.Tokens(n)), "caller")
	}
}

func (t *tally) openAIMessages(field string, messages []any) error {
	for i, item := range messages {
		field := at(field, i)
		message, err := mustObject(field, item)
		if err != nil {
			return err
		}
		if err := t.openAIMessage(field, message); err != nil {
			return err
		}
	}
	return nil
}

// messageFields are read by name or carry no input.
var messageFields = set("role name content tool_calls function_call tool_call_id refusal type id status annotations audio")

func (t *tally) openAIMessage(field string, message map[string]any) error {
	if err := t.item(field); err != nil {
		return err
	}
	t.messages++
	for _, key := range []string{"role", "name", "refusal", "tool_call_id"} {
		value, err := stringAt(message, field, key)
		if err != nil {
			return err
		}
		if key == "name" && value != "" {
			t.names++
		}
		if err := t.text(field+"."+key, value); err != nil {
			return err
		}
	}
	if err := t.openAIContent(field+".content", message["content"]); err != nil {
		return err
	}
	for _, key := range []string{"tool_calls", "function_call"} {
		if err := t.json(field+"."+key, message[key]); err != nil {
			return err
		}
	}
	if message["audio"] != nil { // an earlier answer, by its id
		if err := t.stored(field+".audio", "audio of an earlier answer", KindAudio); err != nil {
			return err
		}
	}
	for key, value := range message { // such as reasoning_content of DeepSeek
		if !messageFields[key] {
			if err := t.json(field+"."+key, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// openAIContent counts a message's content: text or a list of parts.
func (t *tally) openAIContent(field string, content any) error {
	switch v := content.(type) {
	case nil:
		return nil
	case string:
		return t.text(field, v)
	case []any:
		for i, item := range v {
			field := at(field, i)
			part, err := t.object(field, item)
			if err != nil {
				return err
			}
			kind, err := stringAt(part, field, "type")
			if err != nil {
				return err
			}
			switch kind {
			case "text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal":
				for _, key := range []string{"text", "refusal"} {
					text, err := stringAt(part, field, key)
					if err != nil {
						return err
					}
					if err := t.text(field+"."+key, text); err != nil {
						return err
					}
				}
			default:
				if err := t.openAIMedium(field, kind, part); err != nil {
					return err
				}
			}
		}
		return nil
	default:
		return invalid(field, "must be text or a list of parts")
	}
}

func (t *tally) openAITools(field string, tools []any) error {
	for i, item := range tools {
		field := at(field, i)
		tool, err := t.object(field, item)
		if err != nil {
			return err
		}
		kind, err := stringAt(tool, field, "type")
		if err != nil {
			return err
		}
		switch kind {
		case "function", "custom", "": // "": an entry of functions
		default:
			return refusePart(field+".type", "what tool "+quoted(kind)+" adds")
		}
		if err := t.tool(field, tool); err != nil {
			return err
		}
	}
	return nil
}

// responsesInput counts the input of a responses body.
func (t *tally) responsesInput(body map[string]any) error {
	instructions, err := stringAt(body, requestField, "instructions")
	if err != nil {
		return err
	}
	if instructions != "" {
		t.messages++
		if err := t.text(requestField+".instructions", "system"); err != nil {
			return err
		}
		if err := t.text(requestField+".instructions", instructions); err != nil {
			return err
		}
	}
	field := requestField + ".input"
	switch v := body["input"].(type) {
	case nil:
		return nil
	case string:
		t.messages++
		if err := t.text(field, "user"); err != nil {
			return err
		}
		return t.text(field, v)
	case []any:
		for i, item := range v {
			if err := t.responsesItem(at(field, i), item); err != nil {
				return err
			}
		}
		return nil
	default:
		return invalid(field, "must be text or a list of items")
	}
}

func (t *tally) responsesItem(field string, value any) error {
	item, err := mustObject(field, value)
	if err != nil {
		return err
	}
	kind, err := stringAt(item, field, "type")
	if err != nil {
		return err
	}
	switch kind {
	case "", "message":
		return t.openAIMessage(field, item)
	case "item_reference":
		return t.stored(field, "an item of an earlier answer", KindStored)
	case "computer_call_output":
		if err := t.item(field); err != nil {
			return err
		}
		t.messages++
		output, err := objectAt(item, field, "output")
		if err != nil {
			return err
		}
		return t.openAIMedium(field+".output", "computer_screenshot", output)
	case "function_call", "custom_tool_call", "computer_call", "reasoning":
		if err := t.item(field); err != nil {
			return err
		}
		t.messages++
		return t.json(field, item)
	case "function_call_output", "custom_tool_call_output":
		if err := t.item(field); err != nil {
			return err
		}
		t.messages++
		for _, key := range []string{"type", "call_id"} {
			text, err := stringAt(item, field, key)
			if err != nil {
				return err
			}
			if err := t.text(field+"."+key, text); err != nil {
				return err
			}
		}
		return t.openAIContent(field+".output", item["output"])
	default:
		return refusePart(field+".type", "an item of type "+quoted(kind))
	}
}
