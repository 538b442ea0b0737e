package estimator

import (
	"context"

	"github.com/budgetd/budgetd/estimator/encoding"
	"github.com/budgetd/budgetd/estimator/family"
	"github.com/budgetd/budgetd/quota"
)

// counter is what a call's texts are counted by: an encoding exactly, or a rule
// on its pieces.
type counter struct {
	encoding *encoding.Counter
	rule     family.Rule // the zero Rule: the encoding itself
}

// count returns the figures of a text, or the context's error when it ends
// before they are known.
func (c counter) count(ctx context.Context, text string) (Figures, error) {
	if c.rule.Family != "" {
		return bound(ctx, c.rule, c.encoding, text)
	}
	n, err := c.encoding.CountContext(ctx, text)
	return exactly(quota.Tokens(n)), err
}
