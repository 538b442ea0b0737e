package rpc

import (
	"regexp"
	"strings"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/reservation"
)

// place says where in a request the domain's own fields are.
type place struct {
	llm    string // of the fields of a model call: "llm"
	tokens string // of token classes: "usage.tokens"
	usage  string // of the provider's usage object: "usage.providerUsage"
}

var (
	inReserve  = place{llm: "llm"}
	inCharge   = place{llm: "llm", tokens: "llm.tokens", usage: "llm.providerUsage"}
	inRefund   = place{tokens: "usage.tokens", usage: "usage.providerUsage"}
	inEstimate = place{llm: "llm"}
	inNothing  = place{}
)

// path is the beginning of a text that names a field: "amounts[\"tokens\"]",
// "usage.tokens.input".
var path = regexp.MustCompile(`^[a-z][a-z0-9_]*(?:\.[A-Za-z0-9_]+|\[(?:"(?:[^"\\]|\\.)*"|[0-9]+)\])*$`)

// fieldOf is the field of the request that an error of the broker is about.
// Some of its errors name the exact field in their text.
func fieldOf(e *reservation.InvalidError, in place) *budgetv1.InvalidField {
	field, problem := e.Field, e.Problem
	if head, rest, ok := strings.Cut(problem, ": "); ok && path.MatchString(head) {
		last := field[strings.LastIndexByte(field, '.')+1:]
		parent := strings.TrimSuffix(field, last)
		first := head[:len(head)-len(strings.TrimLeft(head, "abcdefghijklmnopqrstuvwxyz0123456789_"))]
		switch {
		case strings.HasPrefix(head, field):
			field, problem = head, rest
		case first == last:
			field, problem = parent+head, rest
		case strings.HasPrefix(head, "amounts["):
			field, problem = field+"."+head, rest
		}
	}
	return &budgetv1.InvalidField{Field: in.jsonPath(field), Problem: problem, Bound: e.Bound}
}

// callField is where a field of a model call, of token classes or of a
// provider's usage object is in the request.
func (in place) callField(field string) string {
	switch {
	case field == "llm" || strings.HasPrefix(field, "usage.tokens"):
		return in.jsonPath(field)
	case field == "provider_usage" || strings.HasPrefix(field, "provider_usage."), strings.HasPrefix(field, "provider_usage["):
		return in.usage + strings.TrimPrefix(field, "provider_usage")
	case in.llm != "":
		return in.llm + "." + in.jsonPath(field)
	}
	return in.jsonPath(field)
}

// jsonPath writes a path of the domain with the names that JSON has for it.
func (in place) jsonPath(field string) string {
	if rest, ok := strings.CutPrefix(field, "usage.tokens"); ok && in.tokens != "" {
		field = in.tokens + rest
	}
	var written strings.Builder
	for field != "" {
		end := strings.IndexAny(field, ".[")
		if end < 0 {
			end = len(field)
		}
		name := jsonName(field[:end])
		written.WriteString(name)
		field = field[end:]
		if name == "providerRequest" || name == "providerUsage" {
			// What is inside has the names that the provider gave it.
			written.WriteString(field)
			break
		}
		for strings.HasPrefix(field, "[") {
			end := closing(field)
			written.WriteByte('[')
			written.WriteString(strings.Trim(field[1:end], `"`))
			written.WriteByte(']')
			field = field[min(end+1, len(field)):]
		}
		if strings.HasPrefix(field, ".") {
			written.WriteByte('.')
			field = field[1:]
		}
	}
	return written.String()
}

// closing is where the bracket ends that the text begins with: a quoted key may
// hold brackets too.
func closing(text string) int {
	quoted := false
	for i := 1; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++
		case text[i] == '"':
			quoted = !quoted
		case !quoted && text[i] == ']':
			return i
		}
	}
	return len(text) - 1
}

// jsonName is lower camel case, as protobuf forms JSON names, except for the
// one name that differs from the domain's.
func jsonName(name string) string {
	if name == "cache_write_1h" {
		return "cacheWriteHour"
	}
	if !strings.Contains(name, "_") {
		return name
	}
	var camel strings.Builder
	for i, word := range strings.Split(name, "_") {
		if i > 0 && word != "" {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		camel.WriteString(word)
	}
	return camel.String()
}
