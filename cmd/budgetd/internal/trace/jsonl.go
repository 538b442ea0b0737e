package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
)

// JSONLines reads calls from a file with one JSON object a line, whose members
// are the columns of [Fields]: {"time": "2026-03-10T12:00:00Z", "account":
// "acme", "labels": {"team": "red"}, "input": 900, "output": 55}. A blank line
// is passed over, null states nothing.
type JSONLines struct {
	source
	known  map[string]field
	failed error
}

// maxKnownFields bounds the names that a reader remembers.
const maxKnownFields = 1024

// NewJSONLines makes a reader. name is what errors call the file.
func NewJSONLines(in io.Reader, name string) *JSONLines {
	return &JSONLines{source: newSource(in, name), known: map[string]field{}}
}

// Next implements Calls.
func (r *JSONLines) Next() (Call, error) {
	if r.failed != nil {
		return Call{}, r.failed
	}
	var text []byte
	for len(text) == 0 {
		var err error
		if text, err = r.next(); err != nil {
			var line *LineError
			if !errors.As(err, &line) {
				r.failed = err
			}
			return Call{}, err
		}
		text = bytes.TrimSpace(text)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var members map[string]any
	if err := decoder.Decode(&members); err != nil {
		return Call{}, r.fault("", "is not a JSON object: %v", err)
	}
	if members == nil || decoder.More() {
		return Call{}, r.fault("", "is not one JSON object")
	}
	call := Call{File: r.name, Line: r.n}
	var e ending
	for _, name := range sortedNames(members) {
		if at, err := r.member(&call, &e, name, members[name]); err != nil {
			return Call{}, r.fault(shorten(at), "%v", err)
		}
	}
	if name, err := call.finish(&e); err != nil {
		return Call{}, r.fault(name, "%v", err)
	}
	return call, nil
}

// member sets what one member of a line's object says. It returns the name of
// what is at fault.
func (r *JSONLines) member(call *Call, e *ending, name string, value any) (string, error) {
	switch name {
	case "labels", "amounts", "held":
		group, ok := value.(map[string]any)
		if !ok && value != nil {
			return name, errors.New("is not an object")
		}
		for _, key := range sortedNames(group) {
			if at, err := r.scalar(call, e, name+"."+key, group[key]); err != nil {
				return at, err
			}
		}
		return "", nil
	}
	return r.scalar(call, e, name, value)
}

func (r *JSONLines) scalar(call *Call, e *ending, name string, value any) (string, error) {
	f, known := r.known[name]
	if !known {
		var err error
		if f, err = fieldOf(name); err != nil {
			return name, err
		}
		if len(r.known) < maxKnownFields {
			r.known[name] = f
		}
	}
	var text string
	switch value := value.(type) {
	case nil:
		return "", nil
	case string:
		text = value
	case json.Number:
		text = value.String()
	case bool:
		text = strconv.FormatBool(value)
	default:
		return name, errors.New("is a list or an object; write one value")
	}
	return name, call.set(&f, text, e)
}
