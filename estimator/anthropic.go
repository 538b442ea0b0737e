package estimator

import "strconv"

// anthropicKnobs are the fields of a messages body that are read by name or
// carry no input.
var anthropicKnobs = set(`
	model messages system tools tool_choice max_tokens temperature top_p top_k stop_sequences stream metadata
	thinking service_tier anthropic_version anthropic_beta cache_control inference_geo speed
	container mcp_servers context_management`)

// readAnthropic reads a messages body.
func (t *tally) readAnthropic(body map[string]any) error {
	n, ok, err := tokensAt(body, requestField, "max_tokens")
	if err != nil {
		return err
	}
	if ok {
		t.maxOutput = &n
	}
	if t.count == nil {
		return nil
	}
	t.isChat = true
	t.cacheWrite = cacheWriteNever // unless a cache_control is found
	if err := t.cacheControl(requestField, body); err != nil {
		return err
	}
	for _, key := range []string{"container", "mcp_servers"} {
		if body[key] != nil {
			return refusePart(requestField+"."+key, "what "+key+" adds")
		}
	}
	if body["system"] != nil {
		t.messages++
		if err := t.anthropicContent(requestField+".system", body["system"], 0); err != nil {
			return err
		}
	}
	messages, err := listAt(body, requestField, "messages")
	if err != nil {
		return err
	}
	if messages == nil {
		return invalid(requestField+".messages", "is required")
	}
	for i, item := range messages {
		field := at(requestField+".messages", i)
		message, err := t.object(field, item)
		if err != nil {
			return err
		}
		t.messages++
		role, err := stringAt(message, field, "role")
		if err != nil {
			return err
		}
		if err := t.text(field+".role", role); err != nil {
			return err
		}
		if err := t.anthropicContent(field+".content", message["content"], 0); err != nil {
			return err
		}
	}
	tools, err := listAt(body, requestField, "tools")
	if err != nil {
		return err
	}
	for i, item := range tools {
		field := at(requestField+".tools", i)
		tool, err := t.object(field, item)
		if err != nil {
			return err
		}
		kind, err := stringAt(tool, field, "type")
		if err != nil {
			return err
		}
		if kind != "" && kind != "custom" {
			tokens, ok := anthropicTool(kind)
			if !ok {
				return refusePart(field+".type", "what tool "+quoted(kind)+" adds")
			}
			t.add(KindTools, 0, exactly(tokens), documentedOverhead)
		}
		if err := t.cacheControl(field, tool); err != nil {
			return err
		}
		if err := t.tool(field, tool); err != nil {
			return err
		}
	}
	return t.rest(body, anthropicKnobs)
}

// maxContentDepth bounds tool results within content: the API allows one.
const maxContentDepth = 4

// anthropicContent counts text or a list of content blocks.
func (t *tally) anthropicContent(field string, content any, depth int) error {
	switch v := content.(type) {
	case nil:
		return nil
	case string:
		return t.text(field, v)
	case []any:
		if depth > maxContentDepth {
			return invalid(field, "is nested too deep")
		}
		for i, item := range v {
			field := at(field, i)
			block, err := t.object(field, item)
			if err != nil {
				return err
			}
			if err := t.anthropicBlock(field, block, depth); err != nil {
				return err
			}
		}
		return nil
	default:
		return invalid(field, "must be text or a list of blocks")
	}
}

func (t *tally) anthropicBlock(field string, block map[string]any, depth int) error {
	if err := t.cacheControl(field, block); err != nil {
		return err
	}
	kind, err := stringAt(block, field, "type")
	if err != nil {
		return err
	}
	switch kind {
	case "text":
		text, err := stringAt(block, field, "text")
		if err != nil {
			return err
		}
		if err := t.text(field+".text", text); err != nil {
			return err
		}
		return t.json(field+".citations", block["citations"])
	case "image":
		_, data, err := anthropicSource(field, block)
		if err != nil {
			return err
		}
		return t.image(field, data, "")
	case "document":
		return t.anthropicDocument(field, block, depth)
	case "search_result":
		for _, key := range []string{"title", "source"} {
			text, err := stringAt(block, field, key)
			if err != nil {
				return err
			}
			if err := t.text(field+"."+key, text); err != nil {
				return err
			}
		}
		return t.anthropicContent(field+".content", block["content"], depth+1)
	case "thinking", "redacted_thinking", "tool_use":
		return t.json(field, block)
	case "tool_result":
		id, err := stringAt(block, field, "tool_use_id")
		if err != nil {
			return err
		}
		if err := t.text(field+".tool_use_id", "tool_result "+id); err != nil {
			return err
		}
		return t.anthropicContent(field+".content", block["content"], depth+1)
	default:
		return refusePart(field+".type", "content of type "+quoted(kind))
	}
}

// anthropicSource returns where an image or a document comes from: its type and
// its base64, "" when the request only names it.
func anthropicSource(field string, block map[string]any) (mediaType, data string, err error) {
	source, err := objectAt(block, field, "source")
	if err != nil {
		return "", "", err
	}
	field += ".source"
	if mediaType, err = stringAt(source, field, "media_type"); err != nil {
		return "", "", err
	}
	data, err = stringAt(source, field, "data")
	return mediaType, data, err
}

// anthropicDocument counts a document: its title and context, and its source,
// which is text, content blocks, base64, a URL or a file's id.
func (t *tally) anthropicDocument(field string, block map[string]any, depth int) error {
	for _, key := range []string{"title", "context"} {
		text, err := stringAt(block, field, key)
		if err != nil {
			return err
		}
		if err := t.text(field+"."+key, text); err != nil {
			return err
		}
	}
	mediaType, data, err := anthropicSource(field, block)
	if err != nil {
		return err
	}
	source, _ := block["source"].(map[string]any)
	field += ".source"
	kind, err := stringAt(source, field, "type")
	if err != nil {
		return err
	}
	switch kind {
	case "text":
		return t.text(field+".data", data)
	case "content":
		return t.anthropicContent(field+".content", source["content"], depth+1)
	default:
		return t.document(field, mediaType, data, "")
	}
}

// cacheControl notes what a block asks of the prompt cache.
func (t *tally) cacheControl(field string, block map[string]any) error {
	control, err := objectAt(block, field, "cache_control")
	if err != nil || control == nil {
		return err
	}
	return t.cacheLife(field+".cache_control", control)
}

// cacheLife notes how long what is written to the prompt cache shall live: five
// minutes unless it says otherwise.
func (t *tally) cacheLife(field string, control map[string]any) error {
	ttl, err := stringAt(control, field, "ttl")
	if err != nil {
		return err
	}
	if ttl == "" || ttl == "5m" {
		t.cacheWrite = max(t.cacheWrite, cacheWriteDefault)
	} else {
		t.cacheWrite = cacheWrite1h
	}
	return nil
}

// quoted quotes a name from a request for a message, bounded.
func quoted(s string) string {
	if len(s) > 40 {
		s = s[:40]
	}
	return strconv.Quote(s)
}
