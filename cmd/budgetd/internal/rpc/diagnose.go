package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
)

// maxShownDepth bounds the path of a syntax error.
const maxShownDepth = 6

// diagnose finds the field at fault in JSON that protojson refused with cause.
// It runs only for requests that are refused anyway. Values are repeated only
// when they are numbers or words such as NaN: text may be a prompt.
func diagnose(text []byte, md protoreflect.MessageDescriptor, cause error) *budgetv1.InvalidField {
	if len(bytes.TrimSpace(text)) == 0 {
		return &budgetv1.InvalidField{Problem: "the request is empty", Bound: "a JSON object, such as {}"}
	}
	if fault := syntaxFault(text); fault != nil {
		return fault
	}
	if fault := messageFault(text, md, "", 0); fault != nil {
		return fault
	}
	// Not found where it is: what protojson says, without its prefix.
	problem := strings.TrimPrefix(strings.ReplaceAll(cause.Error(), "\u00a0", " "), "proto: ")
	return &budgetv1.InvalidField{Problem: "the request can't be read: " + shorten(problem, 200)}
}

func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// syntaxFault finds where the text stops being JSON.
func syntaxFault(text []byte) *budgetv1.InvalidField {
	type level struct {
		object bool
		key    string // object: of the value that comes; set when expectValue
		value  bool   // object: a value comes next
		index  int    // array
	}
	var levels []level
	where := func() string {
		var b strings.Builder
		for i, l := range levels[:min(len(levels), maxShownDepth)] {
			switch {
			case !l.object:
				fmt.Fprintf(&b, "[%d]", l.index)
			case !l.value:
			case i == 0:
				b.WriteString(l.key)
			case mapFields[levels[i-1].key]:
				b.WriteString("[" + l.key + "]")
			default:
				b.WriteString("." + l.key)
			}
		}
		return b.String()
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	done := func() { // a value has ended
		if n := len(levels); n > 0 {
			if levels[n-1].object {
				levels[n-1].value = false
			} else {
				levels[n-1].index++
			}
		}
	}
	for {
		token, err := decoder.Token()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && len(levels) == 0:
			return nil
		default:
			return brokenAt(text, decoder.InputOffset(), where())
		}
		if len(levels) > maxDepth {
			return &budgetv1.InvalidField{Field: where(), Problem: "is nested too deep", Bound: fmt.Sprintf("at most %d levels", maxDepth)}
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{', '[':
				levels = append(levels, level{object: t == '{'})
			default:
				levels = levels[:len(levels)-1]
				done()
			}
			continue
		case string:
			if n := len(levels); n > 0 && levels[n-1].object && !levels[n-1].value {
				levels[n-1].key, levels[n-1].value = shorten(t, 64), true
				continue
			}
		}
		done()
		if len(levels) == 0 && bytes.TrimSpace(text[decoder.InputOffset():]) == nil {
			return nil
		}
	}
}

// mapFields are the fields whose keys are the caller's own, as paths write them
// in brackets.
var mapFields = map[string]bool{"amounts": true, "labels": true}

// word finds what somebody wrote in place of a JSON value.
var word = regexp.MustCompile(`^[\s:,]*([-+]?(?:NaN|nan|Infinity|Inf|inf|None|True|False|undefined)|[-+]?[0-9][0-9A-Za-z_.+-]{0,30})`)

func brokenAt(text []byte, offset int64, field string) *budgetv1.InvalidField {
	offset = min(offset, int64(len(text)))
	if found := word.FindSubmatch(text[offset:]); found != nil {
		return &budgetv1.InvalidField{Field: field, Problem: fmt.Sprintf("%s is not a JSON value", found[1]), Bound: "a number such as 4000"}
	}
	return &budgetv1.InvalidField{Field: field, Problem: fmt.Sprintf("the request is not JSON: it breaks after byte %d", offset)}
}

// messageFault finds the first field of an object that its message can't take.
// The text is valid JSON.
func messageFault(text []byte, md protoreflect.MessageDescriptor, at string, depth int) *budgetv1.InvalidField {
	members, ok := object(text)
	if !ok {
		return &budgetv1.InvalidField{Field: at, Problem: "is not a JSON object"}
	}
	seen := map[protoreflect.FieldNumber]bool{}
	for _, member := range members {
		field := md.Fields().ByJSONName(member.key)
		if field == nil {
			field = md.Fields().ByName(protoreflect.Name(member.key))
		}
		if field == nil {
			return &budgetv1.InvalidField{Field: join(at, shorten(member.key, 64)), Problem: "is not a field of this request" + closest(md, member.key)}
		}
		name := join(at, field.JSONName())
		if seen[field.Number()] {
			return &budgetv1.InvalidField{Field: name, Problem: "is stated twice"}
		}
		seen[field.Number()] = true
		if string(member.value) == "null" {
			continue
		}
		if fault := fieldFault(member.value, field, name, depth); fault != nil {
			return fault
		}
	}
	return nil
}

func fieldFault(value json.RawMessage, field protoreflect.FieldDescriptor, name string, depth int) *budgetv1.InvalidField {
	switch {
	case field.IsMap():
		entries, ok := object(value)
		if !ok {
			return &budgetv1.InvalidField{Field: name, Problem: "is not a JSON object"}
		}
		seen := map[string]bool{}
		for _, entry := range entries {
			entryName := name + "[" + shorten(entry.key, 64) + "]"
			if seen[entry.key] {
				return &budgetv1.InvalidField{Field: entryName, Problem: "is stated twice"}
			}
			seen[entry.key] = true
			key, err := json.Marshal(entry.key)
			if err != nil || !fits(field, []byte(`{`+string(key)+`:`+string(entry.value)+`}`)) {
				return valueFault(entryName, field.MapValue(), entry.value)
			}
		}
	case field.IsList():
		var elements []json.RawMessage
		if json.Unmarshal(value, &elements) != nil {
			return &budgetv1.InvalidField{Field: name, Problem: "is not a JSON array"}
		}
		for i, element := range elements {
			if fault := elementFault(element, field, name+"["+strconv.Itoa(i)+"]", depth); fault != nil {
				return fault
			}
		}
	default:
		return elementFault(value, field, name, depth)
	}
	return nil
}

func elementFault(value json.RawMessage, field protoreflect.FieldDescriptor, name string, depth int) *budgetv1.InvalidField {
	if md := field.Message(); md != nil && md.ParentFile().Package() != "google.protobuf" && depth < maxDepth {
		return messageFault(value, md, name, depth+1)
	}
	text := []byte(value)
	if field.IsList() {
		text = append(append([]byte{'['}, value...), ']')
	}
	if !fits(field, text) {
		return valueFault(name, field, value)
	}
	return nil
}

// fits says whether protojson takes the value for the field.
func fits(field protoreflect.FieldDescriptor, value []byte) bool {
	text := make([]byte, 0, len(value)+64)
	text = append(append(append(text, `{"`+field.JSONName()+`":`...), value...), '}')
	return (protojson.UnmarshalOptions{RecursionLimit: maxDepth}).Unmarshal(text, dynamicpb.NewMessage(field.ContainingMessage())) == nil
}

func valueFault(name string, field protoreflect.FieldDescriptor, value json.RawMessage) *budgetv1.InvalidField {
	fault := &budgetv1.InvalidField{Field: name}
	shown := "the value"
	if found := word.FindSubmatch(bytes.Trim(value, `"`)); found != nil && len(value) <= 34 {
		shown = string(found[1])
	}
	switch field.Kind() {
	case protoreflect.Int64Kind:
		fault.Problem = shown + " is not a whole number in range"
		fault.Bound = fmt.Sprintf("0 to %d", quota.MaxAmount)
		if field.FullName() == "budget.v1.AdjustRequest.amount" {
			fault.Bound = fmt.Sprintf("-%d to %d", quota.MaxAmount, quota.MaxAmount)
		}
	case protoreflect.Int32Kind:
		fault.Problem, fault.Bound = shown+" is not a whole number in range", "a whole number"
	case protoreflect.EnumKind:
		fault.Problem, fault.Bound = "is none of the values", enumNames(field.Enum())
	case protoreflect.BoolKind:
		fault.Problem, fault.Bound = "is neither true nor false", "true or false"
	case protoreflect.StringKind:
		fault.Problem, fault.Bound = "is not text", "a JSON string of valid UTF-8"
	case protoreflect.MessageKind:
		switch field.Message().FullName() {
		case "google.protobuf.Timestamp":
			fault.Problem, fault.Bound = "is not an instant", `such as "2026-12-01T00:00:00Z"`
		case "google.protobuf.Duration":
			fault.Problem, fault.Bound = shown+" is not a time", `seconds with an s, such as "60s" or "0.5s"`
		default:
			fault.Problem, fault.Bound = "can't be read", fmt.Sprintf("a JSON object of at most %d levels", maxDepth)
		}
	default:
		fault.Problem = "can't be read"
	}
	return fault
}

// enumNames are the values that may be stated.
func enumNames(enum protoreflect.EnumDescriptor) string {
	var names []string
	for i := range enum.Values().Len() {
		if value := enum.Values().Get(i); value.Number() != 0 {
			names = append(names, string(value.Name()))
		}
	}
	return strings.Join(names, ", ")
}

type member struct {
	key   string
	value json.RawMessage
}

// object returns the members of a JSON object, in their order.
func object(text []byte) ([]member, bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil, false
	}
	var members []member
	for decoder.More() {
		token, err := decoder.Token()
		key, ok := token.(string)
		if err != nil || !ok {
			return nil, false
		}
		m := member{key: key}
		if decoder.Decode(&m.value) != nil {
			return nil, false
		}
		members = append(members, m)
	}
	return members, true
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// closest suggests the field whose name differs in case or underscores only, as
// names copied from elsewhere do.
func closest(md protoreflect.MessageDescriptor, name string) string {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	for i := range md.Fields().Len() {
		if known := md.Fields().Get(i).JSONName(); plain(known) == plain(name) {
			return "; did you mean " + known + "?"
		}
	}
	return ""
}
