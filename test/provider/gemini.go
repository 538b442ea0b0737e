package provider

import (
	"encoding/json"
	"net/http"
	"strings"
)

var gemini = dialect{
	host: "gemini",
	key: func(r *http.Request) string {
		if key := r.Header.Get("X-Goog-Api-Key"); key != "" {
			return key
		}
		return r.URL.Query().Get("key")
	},
	headers: func(_ *exchange, h http.Header) {
		h.Set("Server-Timing", "gfet4t7; dur=12")
		h.Add("Vary", "Origin")
		h.Add("Vary", "X-Origin")
		h.Add("Vary", "Referer")
	},
	fault: func(x *exchange, status int, message string) object {
		names := map[int]string{
			http.StatusBadRequest: "INVALID_ARGUMENT", http.StatusUnauthorized: "UNAUTHENTICATED", http.StatusNotFound: "NOT_FOUND",
			http.StatusTooManyRequests: "RESOURCE_EXHAUSTED", http.StatusServiceUnavailable: "UNAVAILABLE",
		}
		name := names[status]
		if name == "" {
			name = "INTERNAL"
		}
		fault := object{"code": status, "message": message, "status": name}
		if status == http.StatusTooManyRequests {
			fault["details"] = []any{object{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"}}
		}
		return object{"error": fault}
	},
	model: func(x *exchange) string { model, _, _ := strings.Cut(x.r.PathValue("call"), ":"); return model },
}

// metadata is the usage of an answer with so much of its output told.
func metadata(t Tokens, output int64) object {
	text := func(n int64) []any { return []any{object{"modality": "TEXT", "tokenCount": n}} }
	m := object{
		"promptTokenCount": t.prompt(), "candidatesTokenCount": output, "totalTokenCount": t.prompt() + output + t.Reasoning,
		"promptTokensDetails": text(t.prompt()),
	}
	if t.CacheRead > 0 {
		m["cachedContentTokenCount"], m["cacheTokensDetails"] = t.CacheRead, text(t.CacheRead)
	}
	if t.Reasoning > 0 {
		m["thoughtsTokenCount"] = t.Reasoning
	}
	return m
}

// generate is https://ai.google.dev/api/generate-content, plain and streamed.
func (p *Provider) generate(x *exchange) {
	_, method, _ := strings.Cut(x.r.PathValue("call"), ":")
	chunk := func(parts []any, finish any, output int64) object {
		candidate := object{"content": object{"parts": parts, "role": "model"}, "index": 0}
		if finish != nil {
			candidate["finishReason"] = finish
		}
		return object{
			"candidates": []any{candidate}, "usageMetadata": metadata(x.script.Tokens, output),
			"modelVersion": x.model, "responseId": x.id,
		}
	}
	var thoughts, tools []any
	if x.script.Thinking != "" {
		thoughts = []any{object{"text": x.script.Thinking, "thought": true}}
	}
	if tool := x.script.Tool; tool != nil {
		tools = []any{object{"functionCall": object{"name": tool.Name, "args": json.RawMessage(tool.Arguments)}}}
	}
	switch {
	case method == "generateContent":
		parts := thoughts
		if len(x.script.Pieces) > 0 {
			parts = append(parts, object{"text": x.text()})
		}
		p.answer(x, chunk(append(parts, tools...), "STOP", x.script.Tokens.Output))
	case method == "streamGenerateContent" && x.r.URL.Query().Get("alt") == "sse":
		s := p.newStream(x, "\r\n", false)
		if thoughts != nil {
			s.event(chunk(thoughts, nil, 0))
		}
		var told int64
		s.pieces(func(piece string) object {
			told++
			return chunk([]any{object{"text": piece}}, nil, told)
		})
		if tools == nil {
			tools = []any{object{"text": ""}}
		}
		s.finish()
		s.event(chunk(tools, "STOP", x.script.Tokens.Output))
	default:
		writeJSON(x.w, http.StatusNotFound, gemini.fault(x, http.StatusNotFound, "the method does not exist here"))
		p.bill(x, http.StatusNotFound, Tokens{}, false)
	}
}
