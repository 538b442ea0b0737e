package policyfile

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds on a file, so that reading it takes bounded time, memory and stack.
const (
	MaxBytes = 1 << 20 // of the whole file

	maxTokens     = 400_000 // a full file of sensible accounts has half as many
	maxFlowDepth  = 16      // nested {} and []; the plan language needs 5
	maxKeyColumns = 512     // indentation; bounds nested blocks, which grow by a column or more
)

// parseSyntax turns the bytes into the one node of the document. It returns a
// nil node, without an error, for a file that states nothing.
func parseSyntax(data []byte) (root ast.Node, fault *Fault) {
	if fault := checkBytes(data); fault != nil {
		return nil, fault
	}
	// The library has been seen to panic on malformed files; its reader holds
	// no state of ours, so that's only one more malformed file.
	defer func() {
		if recover() != nil {
			root, fault = nil, &Fault{Problem: "the YAML is malformed in a way that has no line; look for unbalanced quotes and brackets"}
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if fault := checkTokens(tokens); fault != nil {
		return nil, fault
	}
	// Doubled keys are reported by the reader, with their path.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) && syntax.Token != nil {
			return nil, at(syntax.Token, "the YAML is malformed: %s", syntax.Message)
		}
		return nil, &Fault{Problem: "the YAML is malformed: " + show(err.Error())}
	}
	for _, document := range file.Docs {
		if document.Body == nil {
			continue
		}
		if root != nil {
			return nil, at(document.Body.GetToken(), "the file has a second document; state everything in one")
		}
		root = document.Body
	}
	return root, nil
}

func at(t *token.Token, format string, values ...any) *Fault {
	fault := &Fault{Problem: fmt.Sprintf(format, values...)}
	if t != nil && t.Position != nil {
		fault.Line, fault.Column = t.Position.Line, t.Position.Column
	}
	return fault
}

func checkBytes(data []byte) *Fault {
	if len(data) > MaxBytes {
		return &Fault{Problem: fmt.Sprintf("the file has %d bytes, at most %d are accepted; split it and apply the parts", len(data), MaxBytes)}
	}
	line := 1
	for rest := data; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			return &Fault{Line: line, Problem: "the file is not valid UTF-8; save it as UTF-8"}
		case r == '\n':
			line++
		case r == '\t', r == '\r' && bytes.HasPrefix(rest, []byte("\r\n")):
		case r < 0x20, 0x7f <= r && r < 0xa0, r == 0xfeff:
			return &Fault{Line: line, Problem: fmt.Sprintf("the file contains the character %U; remove it", r)}
		}
		rest = rest[size:]
	}
	return nil
}

// checkTokens refuses what the plan language has no use for, before the parser
// builds trees of it: whatever could grow beyond the file's own size or nest
// deeper than the stack.
func checkTokens(tokens token.Tokens) *Fault {
	if len(tokens) > maxTokens {
		return &Fault{Problem: fmt.Sprintf("the file has %d words and marks, at most %d are accepted; split it and apply the parts", len(tokens), maxTokens)}
	}
	depth, stated := 0, false
	for _, t := range tokens {
		switch t.Type {
		case token.CommentType:
			continue
		case token.DocumentHeaderType:
			if stated {
				return at(t, "the file has a second document; state everything in one")
			}
		case token.DocumentEndType:
			return at(t, "the file ends a document with ...; leave it out")
		case token.DirectiveType:
			return at(t, "the file has a YAML directive (%%); leave it out")
		case token.AnchorType:
			return at(t, "the file has an anchor (&); write the value out where it is used, or quote it")
		case token.AliasType:
			return at(t, "the file has an alias (*); write the value out, or quote a pattern: \"*\"")
		case token.MergeKeyType:
			return at(t, "the file has a merge key (<<); write the values out")
		case token.TagType:
			return at(t, "the file has a tag (!); leave it out, or quote the value")
		case token.MappingKeyType:
			return at(t, "the file has a complex key (?); write key: value")
		case token.LiteralType, token.FoldedType:
			return at(t, "the file has a block of text (| or >); write the value on one line")
		case token.MappingStartType, token.SequenceStartType:
			if depth++; depth > maxFlowDepth {
				return at(t, "brackets are nested %d deep, at most %d are accepted", depth, maxFlowDepth)
			}
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.SequenceEntryType, token.MappingValueType:
			if depth == 0 && t.Position.Column > maxKeyColumns {
				return at(t, "a key or list entry is in column %d, at most %d is accepted; indent less", t.Position.Column, maxKeyColumns)
			}
		}
		stated = true
	}
	return nil
}
