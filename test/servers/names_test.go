package servers_test

import (
	"regexp"
	"testing"

	"github.com/budgetd/budgetd/test/servers"
)

func TestPrefixIsPlainAndUnique(t *testing.T) {
	plain := regexp.MustCompile(`^t(-[a-z0-9]+)+-[0-9a-f]{8}$`)
	for _, name := range []string{"x", "{tag}:*?", "ünï cödé", "a very long name that goes on beyond what a key needs"} {
		t.Run(name, func(t *testing.T) {
			a, b := servers.Prefix(t), servers.Prefix(t)
			if a == b {
				t.Fatalf("%s came twice", a)
			}
			if !plain.MatchString(a) || len(a) > 51 {
				t.Fatalf("prefix %q of %d characters", a, len(a))
			}
		})
	}
}
