package provider

import (
	"encoding/json"
	"net/http"
	"time"
)

var anthropic = dialect{
	host: "anthropic",
	// The SDKs since version 2 send the key as a bearer token.
	key: func(r *http.Request) string {
		if key := r.Header.Get("X-Api-Key"); key != "" {
			return key
		}
		return bearer(r)
	},
	headers: func(x *exchange, h http.Header) {
		reset := time.Now().Add(time.Second).UTC().Format(time.RFC3339)
		h.Set("Request-Id", "req_"+x.id)
		h.Set("Anthropic-Organization-Id", "org-0123")
		for _, what := range []string{"Requests", "Tokens", "Input-Tokens", "Output-Tokens"} {
			h.Set("Anthropic-Ratelimit-"+what+"-Limit", "4000")
			h.Set("Anthropic-Ratelimit-"+what+"-Remaining", "3999")
			h.Set("Anthropic-Ratelimit-"+what+"-Reset", reset)
		}
		if x.script.Exhausted {
			h.Set("Anthropic-Ratelimit-Requests-Remaining", "0")
			h.Set("Anthropic-Ratelimit-Requests-Reset", time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
		}
	},
	fault: func(x *exchange, status int, message string) object {
		kinds := map[int]string{
			http.StatusBadRequest: "invalid_request_error", http.StatusUnauthorized: "authentication_error",
			http.StatusNotFound: "not_found_error", http.StatusTooManyRequests: "rate_limit_error", 529: "overloaded_error",
		}
		kind := kinds[status]
		if kind == "" {
			kind = "api_error"
		}
		return object{"type": "error", "error": object{"type": kind, "message": message}, "request_id": "req_" + x.id}
	},
	model: func(x *exchange) string { model, _ := x.asked["model"].(string); return model },
}

// messageUsage is the usage of a message with so much of its output told.
func messageUsage(t Tokens, output int64) object {
	return object{
		"input_tokens": t.Input, "cache_read_input_tokens": t.CacheRead,
		"cache_creation_input_tokens": t.CacheWrite + t.CacheWrite1h,
		"cache_creation":              object{"ephemeral_5m_input_tokens": t.CacheWrite, "ephemeral_1h_input_tokens": t.CacheWrite1h},
		"output_tokens":               output, "service_tier": "standard",
	}
}

// messages is https://docs.anthropic.com/en/api/messages.
func (p *Provider) messages(x *exchange) {
	if x.r.Header.Get("Anthropic-Version") == "" {
		writeJSON(x.w, http.StatusBadRequest, anthropic.fault(x, http.StatusBadRequest, "anthropic-version: header is required"))
		p.bill(x, http.StatusBadRequest, Tokens{}, false)
		return
	}
	stop := "end_turn"
	if x.script.Tool != nil {
		stop = "tool_use"
	}
	message := object{
		"id": "msg_" + x.id, "type": "message", "role": "assistant", "model": x.model,
		"content": []any{}, "stop_reason": nil, "stop_sequence": nil,
	}
	if x.streamed() {
		p.messagesStream(x, message, stop)
		return
	}
	var content []any
	if x.script.Thinking != "" {
		content = append(content, object{"type": "thinking", "thinking": x.script.Thinking, "signature": "c2ln"})
	}
	if len(x.script.Pieces) > 0 {
		content = append(content, object{"type": "text", "text": x.text()})
	}
	if tool := x.script.Tool; tool != nil {
		content = append(content, object{"type": "tool_use", "id": "toolu_" + x.id, "name": tool.Name, "input": json.RawMessage(tool.Arguments)})
	}
	message["content"], message["stop_reason"] = content, stop
	usage := messageUsage(x.script.Tokens, x.script.Tokens.answer())
	usage["output_tokens_details"] = object{"thinking_tokens": x.script.Tokens.Reasoning}
	message["usage"] = usage
	p.answer(x, message)
}

func (p *Provider) messagesStream(x *exchange, message object, stop string) {
	s := p.newStream(x, "\n", true)
	message["usage"] = messageUsage(x.script.Tokens, 1)
	s.event(object{"type": "message_start", "message": message})
	index := 0
	delta := func(delta object) object {
		return object{"type": "content_block_delta", "index": index, "delta": delta}
	}
	block := func(start object, inside func()) {
		s.event(object{"type": "content_block_start", "index": index, "content_block": start})
		if index == 0 {
			s.event(object{"type": "ping"})
		}
		inside()
		s.event(object{"type": "content_block_stop", "index": index})
		index++
	}
	if x.script.Thinking != "" {
		block(object{"type": "thinking", "thinking": "", "signature": ""}, func() {
			s.event(delta(object{"type": "thinking_delta", "thinking": x.script.Thinking}))
			s.event(delta(object{"type": "signature_delta", "signature": "c2ln"}))
		})
	}
	if len(x.script.Pieces) > 0 {
		block(object{"type": "text", "text": ""}, func() {
			s.pieces(func(piece string) object { return delta(object{"type": "text_delta", "text": piece}) })
		})
	}
	if tool := x.script.Tool; tool != nil {
		block(object{"type": "tool_use", "id": "toolu_" + x.id, "name": tool.Name, "input": object{}}, func() {
			for _, part := range append([]string{""}, halves(tool.Arguments)...) {
				s.event(delta(object{"type": "input_json_delta", "partial_json": part}))
			}
		})
	}
	usage := object{"output_tokens": x.script.Tokens.answer(), "output_tokens_details": object{"thinking_tokens": x.script.Tokens.Reasoning}}
	s.finish()
	s.event(object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": usage})
	s.event(object{"type": "message_stop"})
}
