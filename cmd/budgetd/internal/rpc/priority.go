package rpc

import (
	"fmt"
	"strings"

	"github.com/budgetd/budgetd/quota"
)

// Priority reads the word of a priority that a caller states in a field.
func Priority(field, word string) (quota.Priority, error) {
	priority, err := quota.ParsePriority(word)
	if err != nil {
		return priority, Invalid(field, fmt.Sprintf("%.64q is not a priority", word), strings.Join(quota.PriorityWords(), ", "))
	}
	return priority, nil
}
