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
	object *structpb.Struct
	model  string // by the path, else by the body
	llm    *budgetv1.LlmCall
}

var errTooLarge = errors.New("the request is too large for the budget")

// firstRead is how much room is made for a body before any of it has come.
const firstRead = 64 << 10

// readBody reads and closes the body of a request, in the room of its place.
func readBody(request *http.Request, most int64, place *place) ([]byte, error) {
	if request.Body == nil {
		return nil, nil
	}
	defer request.Body.Close()
	stated := request.ContentLength
	if stated > most {
		return nil, errTooLarge
	}
	if stated <= 0 { // not known
		stated = min(firstRead, most)
	}
	if err := place.enter(request.Context(), stated); err != nil {
		return nil, err
	}
	raw := make([]byte, 0, min(stated, firstRead)+1)
	for {
		n, err := request.Body.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		if int64(len(raw)) > most {
			return nil, errTooLarge
		}
		if over := int64(len(raw)) - place.bodies; over > 0 && !place.more(min(max(over, place.bodies), most-place.bodies)) {
			return nil, errNoRoom
		}
		if err == io.EOF {
			return raw, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
		if len(raw) == cap(raw) {
			room := min(max(2*int64(cap(raw)), bytes.MinRead), most+1)
			if known := request.ContentLength + 1; known > int64(cap(raw)) {
				room = min(room, known)
			}
			raw = append(make([]byte, 0, room), raw...)
		}
	}
}

// readRequest says what a body asks for. Errors have nothing of the body in them.
func readRequest(endpoint *Endpoint, model string, raw []byte) (*asked, error) {
	a := &asked{raw: raw, model: model}
	var err error
	if a.object, err = readObject(raw); err != nil {
		return nil, err
	}
	body := a.object
	a.llm = &budgetv1.LlmCall{Provider: endpoint.Provider, ProviderRequest: body, Model: model}
	if model == "" {
		a.model = body.Fields["model"].GetStringValue()
	} else {
		// The provider runs the path's model and does not look at the body's. The
		// broker refuses two that differ.
		delete(body.Fields, "model")
	}
	return a, nil
}

// streams says whether the body asks for a stream by a field.
func (a *asked) streams() bool {
	return a.object.GetFields()["stream"].GetBoolValue()
}

// asksUsage says whether the body asks for the usage of a stream.
func (a *asked) asksUsage() bool {
	return at(a.object, "stream_options.include_usage").GetBoolValue()
}

// allowLess states the fewest output tokens that are worth a grant: no more than
// the body's own bound, and enough for the thinking that it asks for.
func (a *asked) allowLess(endpoint *Endpoint, fewest int64) {
	if len(endpoint.OutputFields) == 0 || endpoint.Signed {
		return
	}
	if thinking, ok := number64(at(a.object, "thinking.budget_tokens")); ok {
		fewest = max(fewest, thinking+1) // Anthropic: max_tokens must be above
	}
	if own, ok := number64(at(a.object, a.outputField(endpoint))); ok {
		fewest = min(fewest, own)
	}
	a.llm.MinOutputTokens = &fewest
}

// outputField is where this body bounds its output: the field that is there,
// else the one whose object is, else the first.
func (a *asked) outputField(endpoint *Endpoint) string {
	for _, field := range endpoint.OutputFields {
		if given(at(a.object, field)) {
			return field
		}
	}
	for _, field := range endpoint.OutputFields {
		if object, _, nested := strings.Cut(field, "."); nested && given(at(a.object, object)) {
			return field
		}
	}
	return endpoint.OutputFields[0]
}

// at finds the value under names with dots between them; nil: there is none.
func at(object *structpb.Struct, field string) *structpb.Value {
	name, rest, nested := strings.Cut(field, ".")
	value := object.GetFields()[name]
	if !nested {
		return value
	}
	return at(value.GetStructValue(), rest)
}

// given says whether a value is there and not null.
func given(value *structpb.Value) bool {
	_, null := value.GetKind().(*structpb.Value_NullValue)
	return value != nil && !null
}

// number64 is a whole number of a body, bounded to what a count of tokens can be.
func number64(value *structpb.Value) (n int64, ok bool) {
	number, ok := value.GetKind().(*structpb.Value_NumberValue)
	if !ok {
		return 0, false
	}
	const most = 1<<53 - 1
	return int64(min(max(number.NumberValue, -most), most)), true
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

// findField finds the extent of a member's value in a valid JSON object, of the last
// member where the name comes twice, as parsers take it. begin is -1 when there is
// none. first is where the members begin.
func findField(object []byte, name string) (begin, end, first int, ok bool) {
	space := func(i int) int {
		for i < len(object) && bytes.IndexByte([]byte(" \t\r\n"), object[i]) >= 0 {
			i++
		}
		return i
	}
	i := space(0)
	if i >= len(object) || object[i] != '{' {
		return -1, -1, 0, false
	}
	begin, first = -1, i+1
	for i = space(first); i < len(object) && object[i] == '"'; {
		keyEnd := endOfString(object, i)
		var key string
		if json.Unmarshal(object[i:keyEnd], &key) != nil {
			return -1, -1, 0, false
		}
		valueBegin := space(space(keyEnd) + 1) // behind the colon
		valueEnd := endOfValue(object, valueBegin)
		if key == name {
			begin, end = valueBegin, valueEnd
		}
		if i = space(valueEnd); i < len(object) && object[i] == ',' {
			i = space(i + 1)
		}
	}
	return begin, end, first, true
}

// endOfValue is where a value of a valid JSON text ends that begins at i.
func endOfValue(text []byte, i int) int {
	for open := 0; i < len(text); {
		switch text[i] {
		case '"':
			i = endOfString(text, i)
		case '{', '[':
			open++
			i++
			continue
		case '}', ']':
			open--
			i++
		case ',', ':', ' ', '\t', '\r', '\n':
			i++
			continue
		default: // a number or a word
			for i < len(text) && bytes.IndexByte([]byte(",:}] \t\r\n"), text[i]) < 0 {
				i++
			}
		}
		if open == 0 {
			return i
		}
	}
	return i
}
