package provider

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"strings"
)

var openAI = dialect{
	host: "openai",
	key:  bearer,
	headers: func(x *exchange, h http.Header) {
		h.Set("X-Request-Id", "req_"+x.id)
		h.Set("Openai-Version", "2020-10-01")
		h.Set("Openai-Processing-Ms", "12")
		h.Set("X-Ratelimit-Limit-Requests", "500")
		h.Set("X-Ratelimit-Limit-Tokens", "200000")
		h.Set("X-Ratelimit-Remaining-Requests", "499")
		h.Set("X-Ratelimit-Remaining-Tokens", "199900")
		h.Set("X-Ratelimit-Reset-Requests", "120ms")
		h.Set("X-Ratelimit-Reset-Tokens", "30ms")
		if x.script.Exhausted {
			h.Set("X-Ratelimit-Remaining-Requests", "0")
			h.Set("X-Ratelimit-Reset-Requests", "1m0s")
		}
	},
	fault: func(_ *exchange, status int, message string) object {
		kind, code := "invalid_request_error", any(nil)
		switch {
		case status == http.StatusUnauthorized:
			code = "invalid_api_key"
		case status == http.StatusNotFound:
			code = "model_not_found"
		case status == http.StatusTooManyRequests:
			kind, code = "requests", "rate_limit_exceeded"
		case status >= http.StatusInternalServerError:
			kind = "server_error"
		}
		return object{"error": object{"message": message, "type": kind, "param": nil, "code": code}}
	},
	model: func(x *exchange) string { model, _ := x.asked["model"].(string); return model },
}

func bearer(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// chatUsage is the usage of a chat completion.
func chatUsage(t Tokens) object {
	return object{
		"prompt_tokens": t.prompt(), "completion_tokens": t.answer(), "total_tokens": t.Total(),
		"prompt_tokens_details": object{"cached_tokens": t.CacheRead, "audio_tokens": 0},
		"completion_tokens_details": object{
			"reasoning_tokens": t.Reasoning, "audio_tokens": 0,
			"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
		},
	}
}

// chat is https://platform.openai.com/docs/api-reference/chat/create.
func (p *Provider) chat(x *exchange) {
	head := object{
		"id": "chatcmpl-" + x.id, "object": "chat.completion", "created": created(), "model": x.model,
		"service_tier": "default", "system_fingerprint": "fp_0123456789",
	}
	finish := "stop"
	if x.script.Tool != nil {
		finish = "tool_calls"
	}
	if x.streamed() {
		p.chatStream(x, head, finish)
		return
	}
	message := object{"role": "assistant", "content": nil, "refusal": nil, "annotations": []any{}}
	if len(x.script.Pieces) > 0 {
		message["content"] = x.text()
	}
	if tool := x.script.Tool; tool != nil {
		message["tool_calls"] = []any{object{
			"id": "call_" + x.id, "type": "function",
			"function": object{"name": tool.Name, "arguments": tool.Arguments},
		}}
	}
	head["choices"] = []any{object{"index": 0, "message": message, "logprobs": nil, "finish_reason": finish}}
	head["usage"] = chatUsage(x.script.Tokens)
	p.answer(x, head)
}

func (p *Provider) chatStream(x *exchange, head object, finish string) {
	options, _ := x.asked["stream_options"].(map[string]any)
	withUsage, _ := options["include_usage"].(bool)
	chunk := func(delta object, finish any) object {
		c := object{"choices": []any{object{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}}, "obfuscation": "x9"}
		for name, value := range head {
			c[name] = value
		}
		c["object"] = "chat.completion.chunk"
		if withUsage {
			c["usage"] = nil
		}
		return c
	}
	s := p.newStream(x, "\n", false)
	s.event(chunk(object{"role": "assistant", "content": "", "refusal": nil}, nil))
	s.pieces(func(piece string) object { return chunk(object{"content": piece}, nil) })
	if tool := x.script.Tool; tool != nil {
		s.event(chunk(object{"tool_calls": []any{object{
			"index": 0, "id": "call_" + x.id, "type": "function", "function": object{"name": tool.Name, "arguments": ""},
		}}}, nil))
		for _, part := range halves(tool.Arguments) {
			s.event(chunk(object{"tool_calls": []any{object{"index": 0, "function": object{"arguments": part}}}}, nil))
		}
	}
	s.event(chunk(object{}, finish))
	if withUsage {
		last := chunk(object{}, nil)
		last["choices"], last["usage"] = []any{}, chatUsage(x.script.Tokens)
		s.event(last)
	}
	s.finish()
	s.raw("data: [DONE]\n\n")
}

// halves splits a text in two, as streams bring the arguments of a tool.
func halves(text string) []string {
	middle := len(text) / 2
	return []string{text[:middle], text[middle:]}
}

// embeddings is https://platform.openai.com/docs/api-reference/embeddings/create.
func (p *Provider) embeddings(x *exchange) {
	x.script.Tokens.Output = 0
	inputs, several := x.asked["input"].([]any)
	if !several {
		inputs = []any{x.asked["input"]}
	}
	vector := []float32{0.25, -0.5, 0.125}
	data := make([]any, len(inputs))
	for i := range inputs {
		entry := object{"object": "embedding", "index": i, "embedding": vector}
		if x.asked["encoding_format"] == "base64" {
			var raw []byte
			for _, v := range vector {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
			}
			entry["embedding"] = base64.StdEncoding.EncodeToString(raw)
		}
		data[i] = entry
	}
	prompt := x.script.Tokens.prompt()
	p.answer(x, object{
		"object": "list", "data": data, "model": x.model,
		"usage": object{"prompt_tokens": prompt, "total_tokens": prompt},
	})
}
