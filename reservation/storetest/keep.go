package storetest

import (
	"fmt"
	"slices"
	"strings"
)

// keep reads what a scenario's plan must leave of its limits: LIMIT:AMOUNT,...
func (made *plan) keep(word string) error {
	for _, part := range strings.Split(word, ",") {
		name, amount, _ := strings.Cut(part, ":")
		at := slices.Index(made.names, name)
		if at < 0 {
			return fmt.Errorf("keep: the plan has no limit %q", name)
		}
		var err error
		if made.Holds[at].Keep, err = parseAmount(amount); err != nil {
			return fmt.Errorf("keep: %w", err)
		}
	}
	return nil
}
