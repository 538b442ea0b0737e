package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A shell replaces $50 outside of single quotes by the parameter $5 and a 0:
// whoever pastes such a line states another amount.
func TestPrintedCommandsQuoteDollars(t *testing.T) {
	var walk func(*cobra.Command)
	examples := 0
	walk = func(cmd *cobra.Command) {
		examples += strings.Count(cmd.Example, "$")
		for _, line := range expandedDollars(cmd.Example) {
			t.Errorf("the example of %s: %s", cmd.CommandPath(), line)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand(streams{in: strings.NewReader(""), out: io.Discard, err: io.Discard}))

	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || examples == 0 {
		t.Fatalf("%d examples have amounts of money; %v", examples, err)
	}
	blocks := 0
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../clients/go/README.md") {
		if filepath.Base(page) == "api.md" {
			continue // test/e2e runs it in a shell; it has functions with parameters
		}
		text, err := os.ReadFile(page)
		if os.IsNotExist(err) && strings.HasPrefix(page, "../../clients") {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)```(?:sh|bash|console)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			blocks++
			for _, line := range expandedDollars(block[1]) {
				t.Errorf("%s: %s", page, line)
			}
		}
	}
	if blocks == 0 {
		t.Error("no page has a block of commands")
	}
}

// expandedDollars are the lines of a shell's text in which a parameter such as
// $5 would be expanded.
func expandedDollars(text string) []string {
	var found []string
	single, double := false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case single:
			single = c != '\''
		case c == '\\':
			i++
		case c == '"':
			double = !double
		case c == '\'' && !double:
			single = true
		case c == '#' && !double && (i == 0 || strings.ContainsRune(" \t\n", rune(text[i-1]))):
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case c == '$' && i+1 < len(text) && '0' <= text[i+1] && text[i+1] <= '9':
			from := strings.LastIndexByte(text[:i], '\n') + 1
			line, _, _ := strings.Cut(text[from:], "\n")
			found = append(found, line)
		}
	}
	return found
}

func TestExpandedDollars(t *testing.T) {
	for text, want := range map[string]int{
		`a --amount $50`: 1, `a --amount '$50'`: 0, `a --amount "$50"`: 1, `a --amount -$20`: 1, `a \$5`: 0,
		"a # that's $5\nb $6": 1, `a "it's $5"`: 1, `a $HOME`: 0, `a cost='$0.25' $1`: 1,
	} {
		if got := expandedDollars(text); len(got) != want {
			t.Errorf("%s: %q, want %d", text, got, want)
		}
	}
}
