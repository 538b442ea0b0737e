package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/budgetd/budgetd/quota"
)

// keep reads what a scenario's plan must leave of its limits: LIMIT:AMOUNT,...
func (made *plan) keep(word string) error {
	return eachAmount(word, func(name string, amount quota.Amount) error {
		at := slices.Index(made.names, name)
		if at < 0 {
			return fmt.Errorf("keep: the plan has no limit %q", name)
		}
		made.Holds[at].Keep = amount
		return nil
	})
}

// eachAmount reads LIMIT:AMOUNT,...
func eachAmount(word string, use func(name string, amount quota.Amount) error) error {
	for _, part := range strings.Split(word, ",") {
		name, text, _ := strings.Cut(part, ":")
		amount, err := parseAmount(text)
		if err == nil {
			err = use(name, amount)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}
