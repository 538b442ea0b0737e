package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// asked is the body of a request that was recognised.
type asked struct {
	raw    []byte
	object map[string]any
	model  string // by the path, else by the body
	llm    *budgetv1.LlmCall
}

var errTooLarge = errors.New("the request is too large for the budget")

// readBody reads and closes the body of a request.
func readBody(request *http.Request, most int64) ([]byte, error) {
	if request.Body == nil {
		return nil, nil
	}
	defer request.Body.Close()
	if request.ContentLength > most {
		return nil, errTooLarge
	}
	raw, err := io.ReadAll(io.LimitReader(request.Body, most+1))
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	if int64(len(raw)) > most {
		return nil, errTooLarge
	}
	return raw, nil
}

// readRequest says what a body asks for. Errors have nothing of the body in them.
func readRequest(endpoint *Endpoint, model string, raw []byte) (*asked, error) {
	a := &asked{raw: raw, model: model}
	if err := json.Unmarshal(raw, &a.object); err != nil || a.object == nil {
		return nil, errors.New("the body is not one JSON object")
	}
	body, err := structpb.NewStruct(a.object)
	if err != nil {
		return nil, errors.New("the body is not JSON in UTF-8")
	}
	a.llm = &budgetv1.LlmCall{Provider: endpoint.Provider, ProviderRequest: body, Model: model}
	if model == "" {
		a.model, _ = a.object["model"].(string)
	} else {
		// The provider runs the path's model and does not look at the body's. The
		// broker refuses two that differ.
		delete(body.Fields, "model")
	}
	return a, nil
}

// streams says whether the body asks for a stream by a field.
func (a *asked) streams() bool {
	stream, _ := a.object["stream"].(bool)
	return stream
}

// asksUsage says whether the body asks for the usage of a stream.
func (a *asked) asksUsage() bool {
	asks, _ := at(a.object, "stream_options.include_usage").(bool)
	return asks
}

// allowLess states the fewest output tokens that are worth a grant: no more than
// the body's own bound, and enough for the thinking that it asks for.
func (a *asked) allowLess(endpoint *Endpoint, fewest int64) {
	if len(endpoint.OutputFields) == 0 || endpoint.Signed {
		return
	}
	if thinking, ok := at(a.object, "thinking.budget_tokens").(float64); ok {
		fewest = max(fewest, int64(thinking)+1) // Anthropic: max_tokens must be above
	}
	if own, ok := at(a.object, a.outputField(endpoint)).(float64); ok {
		fewest = min(fewest, int64(own))
	}
	a.llm.MinOutputTokens = &fewest
}

// outputField is where this body bounds its output: the field that is there,
// else the one whose object is, else the first.
func (a *asked) outputField(endpoint *Endpoint) string {
	for _, field := range endpoint.OutputFields {
		if at(a.object, field) != nil {
			return field
		}
	}
	for _, field := range endpoint.OutputFields {
		if object, _, nested := strings.Cut(field, "."); nested && at(a.object, object) != nil {
			return field
		}
	}
	return endpoint.OutputFields[0]
}

// at finds the value under names with dots between them.
func at(object map[string]any, field string) any {
	name, rest, nested := strings.Cut(field, ".")
	if !nested {
		return object[name]
	}
	inner, _ := object[name].(map[string]any)
	return at(inner, rest)
}

// setField returns a JSON object with one field set and every other byte as it
// was. The field may be nested, dots between the names; objects that are missing
// are made. It returns nil when what is in the way is no object.
func setField(object []byte, field string, value string) []byte {
	name, rest, nested := strings.Cut(field, ".")
	begin, end, first, ok := findField(object, name)
	if !ok {
		return nil
	}
	if begin < 0 { // not there: it becomes the first
		if nested {
			if value = string(setField([]byte("{}"), rest, value)); value == "" {
				return nil
			}
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil
		}
		member := string(key) + ":" + value
		if rest := bytes.TrimLeft(object[first:], " \t\r\n"); len(rest) > 0 && rest[0] != '}' {
			member += ","
		}
		return splice(object, first, first, member)
	}
	if nested {
		inner := object[begin:end]
		if string(inner) == "null" {
			inner = []byte("{}")
		}
		changed := setField(inner, rest, value)
		if changed == nil {
			return nil
		}
		value = string(changed)
	}
	return splice(object, begin, end, value)
}

func splice(data []byte, begin, end int, with string) []byte {
	out := make([]byte, 0, len(data)+len(with))
	out = append(out, data[:begin]...)
	out = append(out, with...)
	return append(out, data[end:]...)
}

// findField finds the extent of a member's value in a JSON object, of the last
// member where the name comes twice, as parsers take it. begin is -1 when there
// is none. first is where the members begin.
func findField(object []byte, name string) (begin, end, first int, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return -1, -1, 0, false
	}
	begin, first = -1, int(decoder.InputOffset())
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return -1, -1, 0, false
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return -1, -1, 0, false
		}
		if key == name {
			end = int(decoder.InputOffset())
			begin = end - len(value)
		}
	}
	return begin, end, first, true
}
