package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/budgetd/budgetd/internal/spelling"
)

// maxFileBytes bounds the file.
const maxFileBytes = 1 << 20

// readFile reads the settings of a YAML file: one mapping of names to scalars,
// each known and stated once.
func (t table[C]) readFile(path string, mustExist bool) (map[string]given, error) {
	file, err := os.Open(path)
	if err != nil {
		if !mustExist && errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, &Error{Source: path, Problem: "can't be read: " + reason(err)}
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, &Error{Source: path, Problem: "can't be read: " + reason(err)}
	}
	if len(text) > maxFileBytes {
		return nil, &Error{Source: path, Problem: fmt.Sprintf("is over %d bytes", maxFileBytes)}
	}
	return t.parse(path, text)
}

// reason is an error of package os without the path, which is told already.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return err.Error()
}

func (t table[C]) parse(path string, text []byte) (map[string]given, error) {
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		// The parser's message quotes the lines around the fault, and a line
		// may hold a password.
		at := ""
		var syntax interface{ GetToken() *token.Token }
		if errors.As(err, &syntax) && syntax.GetToken() != nil {
			at = fmt.Sprintf(":%d", syntax.GetToken().Position.Line)
		}
		return nil, &Error{Source: path + at, Problem: "is not YAML; write one \"setting: value\" a line"}
	}
	var body ast.Node
	for _, document := range file.Docs {
		if document.Body == nil {
			continue
		}
		if _, comment := document.Body.(*ast.CommentGroupNode); comment {
			continue
		}
		if body != nil {
			return nil, &Error{Source: path, Problem: "holds more than one YAML document; keep one"}
		}
		body = document.Body
	}
	var pairs []*ast.MappingValueNode
	switch node := body.(type) {
	case nil:
		return nil, nil
	case *ast.MappingNode:
		pairs = node.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{node}
	default:
		return nil, &Error{Source: path, Problem: "is not a mapping; write one \"setting: value\" a line"}
	}
	values := make(map[string]given, len(pairs))
	var faults []error
	for _, pair := range pairs {
		source := fmt.Sprintf("%s:%d", path, pair.Key.GetToken().Position.Line)
		name := pair.Key.GetToken().Value
		known := slices.IndexFunc(t.settings, func(s SettingOf[C]) bool { return s.Name == name })
		if known < 0 {
			faults = append(faults, &Error{Setting: name, Source: source, Problem: "is not a setting" + didYouMean(name, t.names())})
			continue
		}
		if _, twice := values[name]; twice {
			faults = append(faults, &Error{Setting: name, Source: source, Problem: "is set twice; keep one"})
			continue
		}
		value, err := scalar(pair.Value)
		if err != nil {
			faults = append(faults, &Error{Setting: name, Source: source, Problem: err.Error()})
			continue
		}
		values[name] = given{value, source}
	}
	return values, errors.Join(faults...)
}

// scalar returns the text of a plain value.
func scalar(node ast.Node) (string, error) {
	switch value := node.(type) {
	case *ast.StringNode:
		return value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return node.GetToken().Value, nil
	case *ast.LiteralNode:
		return value.Value.Value, nil
	case *ast.NullNode:
		return "", nil
	}
	return "", errors.New("is not a plain value; lists, mappings, anchors and tags have no meaning here")
}

// names are those of the settings.
func (t table[C]) names() []string {
	names := make([]string, len(t.settings))
	for i, s := range t.settings {
		names[i] = s.Name
	}
	return names
}

// didYouMean names the setting that is closest, if one is close.
func didYouMean(name string, known []string) string {
	if best := spelling.Nearest(name, slices.Values(known), 2); best != "" {
		return "; did you mean " + best + "?"
	}
	return "; docs/configuration.md lists them"
}
