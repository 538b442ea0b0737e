package transport

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/structpb"
)

// Bounds of a body, beside its bytes: a short number in it takes two bytes, and many
// times as much as a value of its own. The largest body of a provider is OpenAI's for
// embeddings, 300,000 tokens as numbers
// (https://platform.openai.com/docs/api-reference/embeddings/create). A long history
// of 10,000 messages with tools has some 200,000 values; a picture is one.
const (
	maxValues = 400_000
	maxDepth  = 500
)

// valueBytes is what a value takes in memory at most, with its name, beside its text:
// BenchmarkReadRequest measures it.
const valueBytes = 256

// bodyError is what a caller can mend. It has nothing of the body in it.
type bodyError struct{ text string }

func (e *bodyError) Error() string { return e.text }

var (
	errNoObject = &bodyError{"the body is not one JSON object"}
	errNumber   = &bodyError{"the body has a number that is too large"}
)

// weigh counts the values of a JSON text, or a little more, and how deep they nest.
// It allocates nothing, and takes any text.
func weigh(raw []byte) (values, depth int) {
	values = 1
	open := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = endOfString(raw, i) - 1
		case ',':
			values++
		case '{', '[':
			values++
			open++
			depth = max(depth, open)
		case '}', ']':
			open--
		}
	}
	return values, depth
}

// endOfString is where a string ends that begins at i, behind its closing quote.
func endOfString[T string | []byte](text T, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// checkBounds refuses a body that is not worth decoding.
func checkBounds(raw []byte) (values int, err error) {
	values, depth := weigh(raw)
	switch {
	case values > maxValues:
		return values, &bodyError{fmt.Sprintf("the body has more than %d JSON values: send less in one request", maxValues)}
	case depth > maxDepth:
		return values, &bodyError{fmt.Sprintf("the body nests more than %d deep", maxDepth)}
	}
	return values, nil
}

// readObject decodes a JSON object, as encoding/json does, into the form in which the
// broker gets it and no other.
func readObject(raw []byte) (*structpb.Struct, error) {
	if !json.Valid(raw) {
		return nil, errNoObject
	}
	r := reader{text: string(raw)}
	if r.space(); r.text[r.at] != '{' {
		return nil, errNoObject
	}
	return r.object()
}

// reader decodes a JSON text that is valid.
type reader struct {
	text string
	at   int
}

func (r *reader) space() {
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n", r.text[r.at]) >= 0 {
		r.at++
	}
}

// took skips a byte and the space around it, if it is the next.
func (r *reader) took(c byte) bool {
	r.space()
	if r.text[r.at] != c {
		return false
	}
	r.at++
	r.space()
	return true
}

func (r *reader) object() (*structpb.Struct, error) {
	object := &structpb.Struct{}
	r.took('{')
	for !r.took('}') {
		r.took(',')
		name := r.string()
		r.took(':')
		value, err := r.value()
		if err != nil {
			return nil, err
		}
		if object.Fields == nil {
			object.Fields = map[string]*structpb.Value{}
		}
		object.Fields[name] = value // the last of a name stands
	}
	return object, nil
}

func (r *reader) list() (*structpb.ListValue, error) {
	list := &structpb.ListValue{}
	r.took('[')
	for !r.took(']') {
		r.took(',')
		value, err := r.value()
		if err != nil {
			return nil, err
		}
		list.Values = append(list.Values, value)
	}
	return list, nil
}

func (r *reader) value() (*structpb.Value, error) {
	switch r.text[r.at] {
	case '{':
		object, err := r.object()
		return structpb.NewStructValue(object), err
	case '[':
		list, err := r.list()
		return structpb.NewListValue(list), err
	case '"':
		return structpb.NewStringValue(r.string()), nil
	case 't':
		r.at += len("true")
		return structpb.NewBoolValue(true), nil
	case 'f':
		r.at += len("false")
		return structpb.NewBoolValue(false), nil
	case 'n':
		r.at += len("null")
		return structpb.NewNullValue(), nil
	}
	begin := r.at
	for r.at < len(r.text) && strings.IndexByte("+-.eE0123456789", r.text[r.at]) >= 0 {
		r.at++
	}
	number, err := strconv.ParseFloat(r.text[begin:r.at], 64)
	if err != nil {
		return nil, errNumber
	}
	return structpb.NewNumberValue(number), nil
}

func (r *reader) string() string {
	begin := r.at
	r.at = endOfString(r.text, begin)
	text := r.text[begin+1 : r.at-1]
	if strings.IndexByte(text, '\\') < 0 && utf8.ValidString(text) {
		return text // of the one copy of the body
	}
	var plain string
	_ = json.Unmarshal([]byte(r.text[begin:r.at]), &plain) // is a string: it was checked
	return plain
}
