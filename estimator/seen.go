package estimator

import (
	"cmp"
	"context"
	"time"

	"github.com/budgetd/budgetd/estimator/answer"
	"github.com/budgetd/budgetd/estimator/encoding"
	"github.com/budgetd/budgetd/estimator/family"
	"github.com/budgetd/budgetd/quota"
)

// MaxSeenText is the longest text, in bytes, that CountSeen counts: 1 MiB.
const MaxSeenText = answer.MaxTextBytes

// CountSeen returns the tokens of the text of an answer that was cut before its
// provider told what it used: exact where the model has a public encoding, else
// what is expected by the rule of its family. The model is that of a [Price]. It
// fails with a [CallError] for a text over [MaxSeenText], and with [ErrBusy] when
// the context ends before the text is counted; nothing of the text is kept.
func (e *Estimator) CountSeen(ctx context.Context, provider, model, text string, at time.Time) (quota.Tokens, error) {
	if len(text) > MaxSeenText {
		return 0, invalid("seen_text", "is over %d bytes", MaxSeenText)
	}
	m, err := e.ModelAt(provider, model, at)
	if err != nil {
		// It was reserved, and is no longer known: its id still tells the family.
		m = Model{Encoding: encodingFor(model), Rule: family.Of(model)}
	}
	by, err := counterOf(m)
	if err != nil {
		return 0, err
	}
	figures, err := e.counting.figures(ctx, by, text)
	return figures.Expected, err
}

// counterOf returns what counts the texts of a model, with its encoding loaded.
func counterOf(m Model) (counter, error) {
	loaded, err := encoding.Load(cmp.Or(m.Encoding, O200kBase))
	if err != nil {
		return counter{}, err
	}
	by := counter{encoding: loaded}
	if m.Encoding == "" {
		by.rule = m.Rule
	}
	return by, nil
}
