package estimator

import "strings"

// bedrockKnobs are the fields of a Converse body that are read by name or carry
// no input. The model is in the URL and may be repeated as modelId.
var bedrockKnobs = set(`
	modelId model messages system inferenceConfig toolConfig guardrailConfig performanceConfig serviceTier requestMetadata
	additionalModelResponseFieldPaths promptVariables`)

// readBedrock reads a Converse or ConverseStream body.
func (t *tally) readBedrock(body map[string]any) error {
	config, err := objectAt(body, requestField, "inferenceConfig")
	if err != nil {
		return err
	}
	n, ok, err := tokensAt(config, requestField+".inferenceConfig", "maxTokens")
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
	t.cacheWrite = cacheWriteNever // unless a cachePoint is found
	if body["promptVariables"] != nil {
		if err := t.stored(requestField+".promptVariables", "a stored prompt", KindStored); err != nil {
			return err
		}
	}
	system, err := listAt(body, requestField, "system")
	if err != nil {
		return err
	}
	if len(system) > 0 {
		t.messages++
		if err := t.bedrockContent(requestField+".system", system, 0); err != nil {
			return err
		}
	}
	messages, err := listAt(body, requestField, "messages")
	if err != nil {
		return err
	}
	if messages == nil && body["promptVariables"] == nil {
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
		content, err := listAt(message, field, "content")
		if err != nil {
			return err
		}
		if err := t.bedrockContent(field+".content", content, 0); err != nil {
			return err
		}
	}
	if err := t.bedrockTools(body); err != nil {
		return err
	}
	return t.rest(body, bedrockKnobs)
}

func (t *tally) bedrockTools(body map[string]any) error {
	config, err := objectAt(body, requestField, "toolConfig")
	if err != nil {
		return err
	}
	tools, err := listAt(config, requestField+".toolConfig", "tools")
	if err != nil {
		return err
	}
	for i, item := range tools {
		field := at(requestField+".toolConfig.tools", i)
		tool, err := t.object(field, item)
		if err != nil {
			return err
		}
		for key, value := range tool {
			switch key {
			case "toolSpec":
				spec, err := asObject(value, field+".toolSpec")
				if err != nil {
					return err
				}
				if err := t.tool(field+".toolSpec", spec); err != nil {
					return err
				}
			case "cachePoint":
				if err := t.cachePoint(field, value); err != nil {
					return err
				}
			default:
				return refusePart(field+"."+key, "what tool "+quoted(key)+" adds")
			}
		}
	}
	return nil
}

// bedrockContent counts a list of content blocks, each an object of one key.
func (t *tally) bedrockContent(field string, blocks []any, depth int) error {
	if depth > maxContentDepth {
		return invalid(field, "is nested too deep")
	}
	for i, item := range blocks {
		field := at(field, i)
		block, err := t.object(field, item)
		if err != nil {
			return err
		}
		for key, value := range block {
			if err := t.bedrockBlock(field+"."+key, key, value, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tally) bedrockBlock(field, key string, value any, depth int) error {
	switch key {
	case "text":
		text, ok := value.(string)
		if !ok {
			return invalid(field, "must be a string")
		}
		return t.text(field, text)
	case "cachePoint":
		return t.cachePoint(field, value)
	case "toolUse", "reasoningContent", "json", "citationsContent":
		return t.json(field, value)
	}
	block, err := asObject(value, field)
	if err != nil {
		return err
	}
	switch key {
	case "guardContent": // its text, or its image, is sent to the model too
		if text, ok := block["text"].(map[string]any); ok {
			text, err := stringAt(text, field+".text", "text")
			if err != nil {
				return err
			}
			return t.text(field+".text.text", text)
		}
		image, err := objectAt(block, field, "image")
		if err != nil {
			return err
		}
		return t.bedrockMedium(field+".image", "image", image)
	case "toolResult":
		id, err := stringAt(block, field, "toolUseId")
		if err != nil {
			return err
		}
		if err := t.text(field+".toolUseId", "toolResult "+id); err != nil {
			return err
		}
		content, err := listAt(block, field, "content")
		if err != nil {
			return err
		}
		return t.bedrockContent(field+".content", content, depth+1)
	case "image", "audio", "video", "document":
		return t.bedrockMedium(field, key, block)
	default:
		return refusePart(field, "content of kind "+quoted(key))
	}
}

// bedrockMedium counts an image, a recording or a document: its bytes as
// base64, or where they are in S3.
func (t *tally) bedrockMedium(field, kind string, block map[string]any) error {
	format, err := stringAt(block, field, "format")
	if err != nil {
		return err
	}
	source, err := objectAt(block, field, "source")
	if err != nil {
		return err
	}
	data, err := stringAt(source, field+".source", "bytes")
	if err != nil {
		return err
	}
	switch kind {
	case "image":
		return t.image(field, data, "")
	case "audio":
		return t.audio(field, strings.ToLower(format), data)
	case "video":
		return t.stored(field, "a video", KindVideo)
	}
	for _, key := range []string{"name", "context"} {
		text, err := stringAt(block, field, key)
		if err != nil {
			return err
		}
		if err := t.text(field+"."+key, text); err != nil {
			return err
		}
	}
	text, err := stringAt(source, field+".source", "text")
	if err != nil {
		return err
	}
	content, err := listAt(source, field+".source", "content")
	if err != nil {
		return err
	}
	switch {
	case text != "":
		return t.text(field+".source.text", text)
	case content != nil:
		return t.bedrockContent(field+".source.content", content, maxContentDepth) // of texts only
	}
	return t.document(field, format, data, "")
}

// cachePoint notes that what comes before is written to the prompt cache.
func (t *tally) cachePoint(field string, value any) error {
	point, err := asObject(value, field)
	if err != nil || point == nil {
		return err
	}
	return t.cacheLife(field, point)
}
