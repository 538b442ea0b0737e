package provider

// responses is https://platform.openai.com/docs/api-reference/responses/create.
func (p *Provider) responses(x *exchange) {
	if x.streamed() {
		p.responsesStream(x)
		return
	}
	p.answer(x, x.response("completed", x.items(), responsesUsage(x.script.Tokens)))
}

// responsesUsage is the usage of a response.
func responsesUsage(t Tokens) object {
	return object{
		"input_tokens": t.prompt(), "output_tokens": t.answer(), "total_tokens": t.Total(),
		"input_tokens_details":  object{"cached_tokens": t.CacheRead, "cache_write_tokens": 0},
		"output_tokens_details": object{"reasoning_tokens": t.Reasoning},
	}
}

// response is the object that plain answers are and that events hold.
func (x *exchange) response(status string, output []any, usage any) object {
	return object{
		"id": "resp_" + x.id, "object": "response", "created_at": created(), "status": status, "background": false,
		"error": nil, "incomplete_details": nil, "instructions": nil, "max_output_tokens": x.asked["max_output_tokens"],
		"metadata": object{}, "model": x.model, "output": output, "parallel_tool_calls": true,
		"previous_response_id": nil, "service_tier": "default", "store": true, "temperature": 1, "tool_choice": "auto",
		"tools": []any{}, "top_p": 1, "truncation": "disabled", "usage": usage, "user": nil,
	}
}

// items are the output: reasoning, text, a call of a tool.
func (x *exchange) items() []any {
	var items []any
	if x.script.Tokens.Reasoning > 0 {
		items = append(items, object{"id": "rs_" + x.id, "type": "reasoning", "summary": []any{}})
	}
	if len(x.script.Pieces) > 0 {
		items = append(items, x.messageItem("completed", []any{textPart(x.text())}))
	}
	if x.script.Tool != nil {
		items = append(items, x.toolItem("completed", x.script.Tool.Arguments))
	}
	return items
}

func textPart(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
}

func (x *exchange) messageItem(status string, content []any) object {
	return object{"id": "msg_" + x.id, "type": "message", "status": status, "role": "assistant", "content": content}
}

func (x *exchange) toolItem(status, arguments string) object {
	return object{
		"id": "fc_" + x.id, "type": "function_call", "status": status, "call_id": "call_" + x.id,
		"name": x.script.Tool.Name, "arguments": arguments,
	}
}

func (p *Provider) responsesStream(x *exchange) {
	s := p.newStream(x, "\n", true)
	number := 0
	event := func(kind string, more object) object {
		e := object{"type": kind, "sequence_number": number}
		number++
		for name, value := range more {
			e[name] = value
		}
		return e
	}
	send := func(kind string, more object) { s.event(event(kind, more)) }
	send("response.created", object{"response": x.response("in_progress", []any{}, nil)})
	send("response.in_progress", object{"response": x.response("in_progress", []any{}, nil)})
	index := 0
	if x.script.Tokens.Reasoning > 0 {
		item := object{"id": "rs_" + x.id, "type": "reasoning", "summary": []any{}}
		send("response.output_item.added", object{"output_index": index, "item": item})
		send("response.output_item.done", object{"output_index": index, "item": item})
		index++
	}
	if len(x.script.Pieces) > 0 {
		at := func(more object) object {
			more["item_id"], more["output_index"], more["content_index"] = "msg_"+x.id, index, 0
			return more
		}
		send("response.output_item.added", object{"output_index": index, "item": x.messageItem("in_progress", []any{})})
		send("response.content_part.added", at(object{"part": textPart("")}))
		s.pieces(func(piece string) object {
			return event("response.output_text.delta", at(object{"delta": piece, "logprobs": []any{}, "obfuscation": "x9"}))
		})
		send("response.output_text.done", at(object{"text": x.text(), "logprobs": []any{}}))
		send("response.content_part.done", at(object{"part": textPart(x.text())}))
		send("response.output_item.done", object{"output_index": index, "item": x.messageItem("completed", []any{textPart(x.text())})})
		index++
	}
	if tool := x.script.Tool; tool != nil {
		at := func(more object) object {
			more["item_id"], more["output_index"] = "fc_"+x.id, index
			return more
		}
		send("response.output_item.added", object{"output_index": index, "item": x.toolItem("in_progress", "")})
		for _, part := range halves(tool.Arguments) {
			send("response.function_call_arguments.delta", at(object{"delta": part}))
		}
		send("response.function_call_arguments.done", at(object{"name": tool.Name, "arguments": tool.Arguments}))
		send("response.output_item.done", object{"output_index": index, "item": x.toolItem("completed", tool.Arguments)})
	}
	s.finish()
	send("response.completed", object{"response": x.response("completed", x.items(), responsesUsage(x.script.Tokens))})
}
