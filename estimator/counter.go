package estimator

import (
	"context"

	"github.com/budgetd/budgetd/estimator/encoding"
	"github.com/budgetd/budgetd/quota"
)

// counter is what a call's texts are counted by: an encoding exactly, or a rule
// on its pieces. It is comparable.
type counter struct {
	encoding *encoding.Counter
	rule     Rule // the zero Rule: the encoding itself
}

// count returns the figures of a text, or the context's error when it ends
// before they are known.
func (c counter) count(ctx context.Context, text string) (Figures, error) {
	if c.rule == (Rule{}) {
		n, err := c.encoding.CountContext(ctx, text)
		return exactly(quota.Tokens(n)), err
	}
	ceiling, err := c.rule.count(ctx, c.encoding, text)
	return c.rule.figures(text, ceiling), err
}
