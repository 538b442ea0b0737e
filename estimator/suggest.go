package estimator

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/budgetd/budgetd/internal/spelling"
)

// maxEdits is how many edits apart a model's name may be from the one that is
// suggested for it: one more for each eight characters, three at most.
func maxEdits(name string) int { return min(1+len(name)/8, 3) }

// unknownModel says that a model has no price, and what may have been meant: a
// name of the same provider that is spelled alike, else a provider that has it.
func (e *Estimator) unknownModel(c *Catalogue, provider, model string, at time.Time) error {
	fault := &UnknownModelError{Provider: provider, Model: model}
	fault.Near = spelling.Nearest(strings.TrimPrefix(model, "models/"), slices.Values(e.namesOf(c, provider)), maxEdits(model))
	if provider == "" || fault.Near != "" {
		return fault
	}
	if m, ok := c.LookupAt("", model, at); ok && !strings.EqualFold(m.Provider, provider) {
		fault.Elsewhere = m.Provider
	}
	return fault
}

// namesOf are the models of a provider, or of all makers for "": those of the
// policy, then the catalogue's.
func (e *Estimator) namesOf(c *Catalogue, provider string) []string {
	var names []string
	if e.policy != nil {
		if policy := e.policy(); policy != nil {
			for i := range policy.Prices {
				if p := &policy.Prices[i]; provider == "" || strings.EqualFold(p.Provider, provider) {
					names = append(names, p.Model)
				}
			}
		}
	}
	for _, p := range c.providers {
		if provider == "" && !p.maker || provider != "" && c.byName[strings.ToLower(provider)] != p {
			continue
		}
		names = slices.AppendSeq(names, maps.Keys(p.names))
		for _, other := range p.fallback {
			names = slices.AppendSeq(names, maps.Keys(c.byName[other].names))
		}
	}
	slices.Sort(names) // the same suggestion each time
	return names
}
