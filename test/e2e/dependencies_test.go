package e2e

import (
	"regexp"
	"testing"
)

// TestDependenciesAreArguedFor: each module that go.mod requires directly has
// its line in docs/dependencies.md, and nothing else has.
func TestDependenciesAreArguedFor(t *testing.T) {
	mod, page := read(t, "go.mod"), read(t, "docs", "dependencies.md")
	required := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(mod, -1) {
		required[line[1]] = true
	}
	argued := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^\| ([a-z][\w.-]*\.[a-z]+/\S+) \|`).FindAllStringSubmatch(page, -1) {
		argued[line[1]] = true
	}
	if len(required) == 0 || len(argued) == 0 {
		t.Fatal("nothing was found: has a form changed?")
	}
	for module := range required {
		if !argued[module] {
			t.Errorf("%s is in go.mod and not in docs/dependencies.md: say why it is the right one", module)
		}
	}
	for module := range argued {
		if !required[module] {
			t.Errorf("%s is in docs/dependencies.md and not in go.mod", module)
		}
	}
}
