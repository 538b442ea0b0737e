package app

import (
	"fmt"

	"github.com/budgetd/budgetd/quota"
)

// maxPinNotes bounds the pins that a page or the banner lists.
const maxPinNotes = 10

// pinNotes says which limits are held at a mode, whatever the policy states.
func pinNotes(policy *quota.Policy) []string {
	pins := policy.Pins()
	var notes []string
	for i, pin := range pins {
		if i == maxPinNotes {
			return append(notes, fmt.Sprintf("and %d more pins", len(pins)-i))
		}
		notes = append(notes, "pinned "+pin.String())
	}
	return notes
}
