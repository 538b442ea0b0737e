package estimator

import (
	"github.com/budgetd/budgetd/estimator/encoding"
	"github.com/budgetd/budgetd/quota"
)

// Encoding names a public token encoding.
type Encoding = encoding.Encoding

// The embedded encodings.
const (
	O200kBase    = encoding.O200kBase
	O200kHarmony = encoding.O200kHarmony
	CL100kBase   = encoding.CL100kBase
	P50kBase     = encoding.P50kBase
	R50kBase     = encoding.R50kBase
)

// Count returns how many tokens the text is in an encoding, in ordinary mode:
// see [encoding.Counter.Count]. The first use of an encoding loads it. It fails
// only on an unknown encoding.
func Count(e Encoding, text string) (quota.Tokens, error) {
	c, err := encoding.Load(e)
	if err != nil {
		return 0, err
	}
	return quota.Tokens(c.Count(text)), nil
}
