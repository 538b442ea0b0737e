package policyfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// reader walks the tree and collects faults.
type reader struct {
	faults []*Fault
}

func (r *reader) fault(t *token.Token, path, format string, values ...any) {
	fault := at(t, format, values...)
	fault.Path = path
	r.faults = append(r.faults, fault)
}

// entry is one key of a mapping.
type entry struct {
	key   string
	path  string
	token *token.Token // the key's
	value ast.Node
}

// mapping returns the entries of a mapping in the order of the file, with
// doubled keys refused.
func (r *reader) mapping(node ast.Node, path, want string) ([]entry, bool) {
	var values []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		r.fault(node.GetToken(), path, "%s is not a mapping; write %s", describe(node), want)
		return nil, false
	}
	entries := make([]entry, 0, len(values))
	lines := make(map[string]int, len(values))
	for _, value := range values {
		keyToken := value.Key.GetToken()
		key, ok := scalarText(value.Key)
		if !ok {
			r.fault(keyToken, path, "a key is %s; write a name", describe(value.Key))
			continue
		}
		at := pathKey(key)
		if path != "" {
			at = path + "." + at
		}
		if line, twice := lines[key]; twice {
			r.fault(keyToken, at, "the key is stated twice, first in line %d; keep one", line)
			continue
		}
		lines[key] = keyToken.Position.Line
		entries = append(entries, entry{key: key, path: at, token: keyToken, value: value.Value})
	}
	return entries, true
}

// list returns the elements of a list with their paths.
func (r *reader) list(node ast.Node, path, want string) ([]entry, bool) {
	sequence, ok := node.(*ast.SequenceNode)
	if !ok {
		r.fault(node.GetToken(), path, "%s is not a list; write %s", describe(node), want)
		return nil, false
	}
	entries := make([]entry, len(sequence.Values))
	for i, value := range sequence.Values {
		entries[i] = entry{path: fmt.Sprintf("%s[%d]", path, i), token: value.GetToken(), value: value}
	}
	return entries, true
}

// text returns the text of a scalar.
func (r *reader) text(e entry, want string) (string, bool) {
	text, ok := scalarText(e.value)
	if !ok {
		r.fault(e.token, e.path, "%s is not a value; write %s", describe(e.value), want)
	}
	return text, ok
}

// word returns a scalar that is one of the words. Words that this version does
// not build are refused as such.
func (r *reader) word(e entry, words, unbuilt []string) (string, bool) {
	want := strings.Join(words, " or ")
	text, ok := r.text(e, want)
	switch {
	case !ok:
	case slices.Contains(words, text):
		return text, true
	case slices.Contains(unbuilt, text):
		r.fault(e.token, e.path, "%s is not supported by this version; write %s", text, want)
	default:
		r.fault(e.token, e.path, "%s is not one of its words; write %s", show(text), want)
	}
	return "", false
}

// texts returns the texts of a scalar or of a list of them.
func (r *reader) texts(e entry, want string) []string {
	if _, ok := e.value.(*ast.SequenceNode); !ok {
		if text, ok := r.text(e, want); ok {
			return []string{text}
		}
		return nil
	}
	elements, _ := r.list(e.value, e.path, want)
	var texts []string
	for _, element := range elements {
		text, ok := r.text(element, want)
		if !ok {
			continue
		}
		if slices.Contains(texts, text) {
			r.fault(element.token, element.path, "%s is listed twice; keep one", show(text))
			continue
		}
		texts = append(texts, text)
	}
	return texts
}

// scalarText is the text of a scalar as it stands in the file: a number, a
// truth value and a string are all the same here, so that user: 7 is the label
// value "7" and 010 is never taken for 8. Null is no scalar.
func scalarText(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return node.GetToken().Value, true
	}
	return "", false
}

// describe names what stands where something else was wanted.
func describe(node ast.Node) string {
	if text, ok := scalarText(node); ok {
		return show(text)
	}
	switch node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	}
	return "something unknown"
}
