package estimator

import (
	"context"

	"github.com/budgetd/budgetd/estimator/encoding"
	"github.com/budgetd/budgetd/estimator/family"
)

// Bounds counts a text by the rules of families: no fewer than the words of the
// text, likely its tokens of o200k_base, and no more than each rule says. Time
// and memory are bounded as those of [Count]. It fails only when the embedded
// encoding can't be read.
func Bounds(text string, rules ...family.Rule) ([]Figures, error) {
	counter, err := encoding.Load(O200kBase)
	if err != nil {
		return nil, err
	}
	sums := make([]family.Sum, len(rules))
	for piece := range counter.Pieces(text) {
		tokens := counter.CountPiece(piece)
		for i, rule := range rules {
			sums[i].Add(rule, piece, tokens)
		}
	}
	out := make([]Figures, len(rules))
	for i, sum := range sums {
		out[i] = figuresOf(sum, text)
	}
	return out, nil
}

// pollPieces is how many pieces are counted between two looks at the context.
const pollPieces = 1 << 10

// bound is Bounds by one rule that gives up with the context's error when it ends.
func bound(ctx context.Context, rule family.Rule, counter *encoding.Counter, text string) (Figures, error) {
	var sum family.Sum
	pieces := 0
	for piece := range counter.Pieces(text) {
		if pieces++; pieces%pollPieces == 0 && ctx.Err() != nil {
			return Figures{}, ctx.Err()
		}
		sum.Add(rule, piece, counter.CountPiece(piece))
	}
	return figuresOf(sum, text), nil
}

// figuresOf has the words of the text for its floor: published tokenizers do not
// merge across the white space between words.
func figuresOf(sum family.Sum, text string) Figures {
	return Figures{min(words(text), sum.Likely()), sum.Likely(), sum.Ceiling()}
}
