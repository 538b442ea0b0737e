package estimator

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/budgetd/budgetd/quota"
)

// maxItems bounds the messages, content parts and tools of one call.
const maxItems = 20_000

// tally gathers what a call says, provider by provider. All text of the call
// passes through text, which counts it and bounds its bytes.
type tally struct {
	model    Model
	method   string                    // what count goes by
	count    func(text string) Figures // nil: the caller counted, text is not looked at
	bytes    int                       // of text
	maxBytes int
	media    int // bytes of base64
	items    int

	parts    []Part
	messages int64
	names    int64
	tools    int64
	isChat   bool // the input is a conversation: message overheads apply

	// cacheWrite says what the body asks of the provider's prompt cache.
	cacheWrite cacheWrite

	tier, speed string // as asked for; "" for the usual ones
	makesAudio  bool   // the answer may be sound
	makesImages bool   // the answer may have pictures

	maxOutput *quota.Tokens // as stated
	choices   int64         // as stated; 0 not
	prompts   int64         // separate prompts of one request, each with its own choices; 0 is 1
}

// cacheWrite orders what writing to the prompt cache may cost.
type cacheWrite int

const (
	cacheWriteUnknown cacheWrite = iota // not said: the provider's default life is assumed
	cacheWriteNever
	cacheWriteDefault
	cacheWrite1h
)

// add enters figures under their kind and method.
func (t *tally) add(kind Kind, count int64, tokens Figures, method string) {
	for i := range t.parts {
		if part := &t.parts[i]; part.Kind == kind && part.Method == method {
			part.Count += count
			part.Tokens = part.Tokens.plus(tokens)
			return
		}
	}
	if count != 0 || tokens != (Figures{}) {
		t.parts = append(t.parts, Part{kind, count, tokens, method})
	}
}

// text counts one piece of the input.
func (t *tally) text(field, text string) error {
	if t.count == nil || text == "" {
		return nil
	}
	if err := t.within(field, text); err != nil {
		return err
	}
	t.add(KindText, int64(len(text)), t.count(text), t.method)
	return nil
}

// within holds the text against the bound of the call.
func (t *tally) within(field, text string) error {
	if len(text) > t.maxBytes-t.bytes {
		return &TooLargeError{Field: field, MaxBytes: t.maxBytes}
	}
	t.bytes += len(text)
	return nil
}

// json counts a value by its JSON text: a rule on the high side for tool calls
// and schemas of answers, which providers turn into terser notations.
func (t *tally) json(field string, value any) error {
	if t.count == nil || value == nil {
		return nil
	}
	text, err := t.jsonText(field, value)
	if err != nil {
		return err
	}
	counted := t.count(text)
	t.add(KindJSON, int64(len(text)), Figures{0, counted.Expected, counted.Ceiling}, t.method)
	return nil
}

// tool counts a declared tool: at most its JSON text, and likely what the
// provider documents for a function where it does.
func (t *tally) tool(field string, tool map[string]any) error {
	t.tools++
	if t.count == nil {
		return nil
	}
	text, err := t.jsonText(field, tool)
	if err != nil {
		return err
	}
	counted := t.count(text)
	f := Figures{0, counted.Expected, counted.Ceiling}
	if t.model.Encoding != "" {
		if n, ok := t.functionTokens(tool); ok {
			f.Expected = min(n, f.Ceiling)
		}
	}
	t.add(KindTools, 1, f, t.method)
	return nil
}

// jsonText is the JSON text of a value, held against the bound of the call.
func (t *tally) jsonText(field string, value any) (string, error) {
	if size := jsonSize(value, t.maxBytes-t.bytes, 0); size < 0 {
		return "", &TooLargeError{Field: field, MaxBytes: t.maxBytes}
	}
	data, err := json.Marshal(value)
	if err != nil {
		return "", invalid(field, "is not JSON")
	}
	return string(data), t.within(field, string(data))
}

// jsonSize returns a lower bound of the bytes of the JSON text of a value, or
// -1 when that is above the limit or the value is nested too deep, so that a
// value is never marshalled before its size is known to be bounded.
func jsonSize(value any, limit, depth int) int {
	size := 1
	if depth > maxDepth {
		return -1
	}
	add := func(n int) bool {
		if n < 0 || n > limit-size {
			return false
		}
		size += n
		return true
	}
	switch v := value.(type) {
	case string:
		if !add(len(v)) {
			return -1
		}
	case []any:
		for _, item := range v {
			if !add(jsonSize(item, limit-size, depth+1)) {
				return -1
			}
		}
	case map[string]any:
		for key, item := range v {
			if !add(len(key)) || !add(jsonSize(item, limit-size, depth+1)) {
				return -1
			}
		}
	}
	if size > limit {
		return -1
	}
	return size
}

// maxDepth bounds the nesting of a tool schema or any other value that is
// counted by its JSON text.
const maxDepth = 200

// item counts one message, part or tool against maxItems.
func (t *tally) item(field string) error {
	if t.items++; t.items > maxItems {
		return invalid(field, "the call has more than %d messages, parts and tools", maxItems)
	}
	return nil
}

// object counts an item of a list, which must be an object.
func (t *tally) object(field string, item any) (map[string]any, error) {
	if err := t.item(field); err != nil {
		return nil, err
	}
	return mustObject(field, item)
}

// at returns the path of a list's item.
func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// refusePart says that some input can't be bounded before the call.
func refusePart(field, what string) error {
	return invalid(field, "%s can't be estimated from the request; count the input yourself and give input_tokens", what)
}

// The readers of parsed JSON. Each returns the zero value for an absent or
// null field and an error for one of another type.

func stringAt(m map[string]any, field, key string) (string, error) {
	switch v := m[key].(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	default:
		return "", invalid(field+"."+key, "must be a string")
	}
}

func objectAt(m map[string]any, field, key string) (map[string]any, error) {
	return asObject(m[key], field+"."+key)
}

func asObject(value any, field string) (map[string]any, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return v, nil
	default:
		return nil, invalid(field, "must be an object")
	}
}

// mustObject is asObject for a value that may not be absent.
func mustObject(field string, value any) (map[string]any, error) {
	object, err := asObject(value, field)
	if err == nil && object == nil {
		err = invalid(field, "must be an object")
	}
	return object, err
}

func listAt(m map[string]any, field, key string) ([]any, error) {
	switch v := m[key].(type) {
	case nil:
		return nil, nil
	case []any:
		return v, nil
	default:
		return nil, invalid(field+"."+key, "must be a list")
	}
}

// tokensAt reads a count of tokens; ok says whether it is stated.
func tokensAt(m map[string]any, field, key string) (n quota.Tokens, ok bool, err error) {
	value, stated := m[key]
	if !stated || value == nil {
		return 0, false, nil
	}
	count, err := wholeNumber(value)
	if err != nil {
		return 0, false, invalid(field+"."+key, "%s", err.Error())
	}
	return quota.Tokens(count), true, nil
}

type numberError string

func (e numberError) Error() string { return string(e) }

var (
	errNotNumber  = numberError("must be a number")
	errNotWhole   = numberError("must be a whole number")
	errOutOfRange = numberError("must be between 0 and " + strconv.FormatInt(int64(quota.MaxAmount), 10))
)

// wholeNumber reads a whole number between 0 and quota.MaxAmount from what
// JSON decoders make of one. 1e3 and 1000.0 are whole; NaN, 1.5 and "7" are
// not.
func wholeNumber(value any) (int64, error) {
	var f float64
	switch v := value.(type) {
	case float64:
		f = v
	case int:
		return inRange(int64(v))
	case int64:
		return inRange(v)
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return inRange(n)
		}
		parsed, err := strconv.ParseFloat(string(v), 64)
		if err != nil {
			return 0, errOutOfRange
		}
		f = parsed
	default:
		return 0, errNotNumber
	}
	switch {
	case math.IsNaN(f):
		return 0, errNotNumber
	case f < 0 || f > float64(quota.MaxAmount):
		return 0, errOutOfRange
	case f != math.Trunc(f):
		return 0, errNotWhole
	}
	return int64(f), nil
}

func inRange(n int64) (int64, error) {
	if quota.Amount(n).Check() != nil {
		return 0, errOutOfRange
	}
	return n, nil
}

// asFloat reads a number from what JSON decoders make of one.
func asFloat(value any) (float64, bool) {
	switch v := value.(type) {
	case float64:
		return v, !math.IsNaN(v)
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case json.Number:
		f, err := strconv.ParseFloat(string(v), 64)
		return f, err == nil
	}
	return 0, false
}
