//go:build !race

package storetest

import (
	"strings"
	"testing"
)

// TestEveryMutantIsCaught plays some hundred thousand histories in one goroutine, in
// which the race detector sees nothing and takes ten times as long: make mutants.
func TestEveryMutantIsCaught(t *testing.T) {
	// Failures are expected: neither written down nor shrunk. The seed is
	// fixed, so that what is caught today is caught tomorrow.
	setFlag(t, "rapid.nofailfile", "true")
	setFlag(t, "rapid.shrinktime", "0s")
	setFlag(t, "rapid.checks", "1500")
	setFlag(t, "rapid.seed", "20261115")
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			by, byHistory := caught(t, m)
			t.Logf("caught by %q, by a history: %v", by, byHistory)
			if len(by) == 0 {
				t.Errorf("no scenario and no case caught it")
			}
			if m.byHistory && !byHistory {
				t.Errorf("no history caught it")
			}
		})
	}
}
