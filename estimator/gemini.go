package estimator

import (
	"cmp"
	"strings"
)

// geminiKnobs are the fields of a generateContent body that are read by name
// or carry no input. Gemini takes camel case and snake case alike.
var geminiKnobs = set(`
	model contents systemInstruction system_instruction tools toolConfig tool_config generationConfig generation_config
	safetySettings safety_settings cachedContent cached_content labels`)

// either returns the value of the first key that is present.
func either(m map[string]any, keys ...string) (value any, key string) {
	for _, key := range keys {
		if m[key] != nil {
			return m[key], key
		}
	}
	return nil, keys[0]
}

// readGemini reads a generateContent body.
func (t *tally) readGemini(body map[string]any) error {
	value, key := either(body, "generationConfig", "generation_config")
	config, err := asObject(value, requestField+"."+key)
	if err != nil {
		return err
	}
	field := requestField + "." + key
	_, key = either(config, "maxOutputTokens", "max_output_tokens")
	n, ok, err := tokensAt(config, field, key)
	if err != nil {
		return err
	}
	if ok {
		t.maxOutput = &n
	}
	_, key = either(config, "candidateCount", "candidate_count")
	candidates, _, err := tokensAt(config, field, key)
	if err != nil {
		return err
	}
	t.choices = int64(candidates)
	if t.count == nil {
		return nil
	}
	t.isChat = true
	if value, key := either(body, "cachedContent", "cached_content"); value != nil {
		if err := t.stored(requestField+"."+key, "cached content", KindStored); err != nil {
			return err
		}
	}
	_, resolution := either(config, "mediaResolution", "media_resolution")
	detail, err := stringAt(config, field, resolution)
	if err != nil {
		return err
	}
	value, key = either(config, "responseSchema", "response_schema", "responseJsonSchema", "response_json_schema")
	if err := t.json(field+"."+key, value); err != nil {
		return err
	}
	value, key = either(body, "systemInstruction", "system_instruction")
	system, err := asObject(value, requestField+"."+key)
	if err != nil {
		return err
	}
	if system != nil {
		if err := t.geminiContent(requestField+"."+key, system, detail); err != nil {
			return err
		}
	}
	contents, err := listAt(body, requestField, "contents")
	if err != nil {
		return err
	}
	if contents == nil {
		return invalid(requestField+".contents", "is required")
	}
	for i, item := range contents {
		field := at(requestField+".contents", i)
		content, err := mustObject(field, item)
		if err != nil {
			return err
		}
		if err := t.geminiContent(field, content, detail); err != nil {
			return err
		}
	}
	tools, err := listAt(body, requestField, "tools")
	if err != nil {
		return err
	}
	for i, item := range tools {
		if err := t.geminiTool(at(requestField+".tools", i), item); err != nil {
			return err
		}
	}
	return t.rest(body, geminiKnobs)
}

func (t *tally) geminiContent(field string, content map[string]any, detail string) error {
	if err := t.item(field); err != nil {
		return err
	}
	t.messages++
	role, err := stringAt(content, field, "role")
	if err != nil {
		return err
	}
	if err := t.text(field+".role", role); err != nil {
		return err
	}
	parts, err := listAt(content, field, "parts")
	if err != nil {
		return err
	}
	for i, item := range parts {
		field := at(field+".parts", i)
		part, err := t.object(field, item)
		if err != nil {
			return err
		}
		detail, err := partResolution(field, part, detail)
		if err != nil {
			return err
		}
		for key, value := range part {
			if err := t.geminiPart(field+"."+key, key, value, detail); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tally) geminiPart(field, key string, value any, detail string) error {
	switch key {
	case "text":
		text, ok := value.(string)
		if !ok {
			return invalid(field, "must be a string")
		}
		return t.text(field, text)
	case "inlineData", "inline_data", "fileData", "file_data":
		data, err := asObject(value, field)
		if err != nil {
			return err
		}
		_, name := either(data, "mimeType", "mime_type")
		mime, err := stringAt(data, field, name)
		if err != nil {
			return err
		}
		base64, err := stringAt(data, field, "data") // absent where a URI names the file
		if err != nil {
			return err
		}
		switch kind, _, _ := strings.Cut(strings.ToLower(mime), "/"); kind {
		case "image":
			return t.image(field, base64, detail)
		case "audio":
			return t.audio(field, strings.ToLower(mime), base64)
		case "video":
			return t.stored(field, "a video", KindVideo)
		default:
			return t.document(field, mime, base64, detail)
		}
	case "functionCall", "function_call", "functionResponse", "function_response", "thoughtSignature", "thought_signature",
		"executableCode", "executable_code", "codeExecutionResult", "code_execution_result":
		if response, ok := value.(map[string]any); ok && response["parts"] != nil {
			return refusePart(field+".parts", "media in a function response")
		}
		return t.json(field, value)
	case "thought", "mediaResolution", "media_resolution":
		return nil
	default:
		return refusePart(field, "a part of kind "+quoted(key))
	}
}

// partResolution is the media resolution that a part asks for, else that of the
// whole request.
func partResolution(field string, part map[string]any, whole string) (string, error) {
	value, key := either(part, "mediaResolution", "media_resolution")
	switch v := value.(type) {
	case nil:
		return whole, nil
	case string:
		return v, nil
	case map[string]any:
		level, err := stringAt(v, field+"."+key, "level")
		return cmp.Or(level, whole), err
	default:
		return "", invalid(field+"."+key, "must be a string or an object")
	}
}

func (t *tally) geminiTool(field string, value any) error {
	tool, err := mustObject(field, value)
	if err != nil {
		return err
	}
	for key := range tool {
		if key != "functionDeclarations" && key != "function_declarations" {
			return refusePart(field, "what tool "+quoted(key)+" adds")
		}
		declarations, err := listAt(tool, field, key)
		if err != nil {
			return err
		}
		for i, declaration := range declarations {
			field := at(field+"."+key, i)
			function, err := t.object(field, declaration)
			if err != nil {
				return err
			}
			if err := t.tool(field, function); err != nil {
				return err
			}
		}
	}
	return nil
}
