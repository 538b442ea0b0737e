package estimator

import "github.com/budgetd/budgetd/quota"

// TokenClasses is what one call used, in disjoint classes: each token is in
// exactly one of them. Every count is 0 to quota.MaxAmount.
type TokenClasses struct {
	Input        quota.Tokens // prompt tokens neither read from nor written to a cache
	CacheRead    quota.Tokens // prompt tokens read from the provider's cache
	CacheWrite   quota.Tokens // prompt tokens written to a cache, except one-hour writes
	CacheWrite1h quota.Tokens // prompt tokens written to a one-hour cache (Anthropic)
	Output       quota.Tokens // generated tokens without reasoning
	Reasoning    quota.Tokens // generated tokens of hidden reasoning
}

// each calls f with every class and the name that messages use for it.
func (c TokenClasses) each(f func(name string, n quota.Tokens) error) error {
	for _, class := range []struct {
		name string
		n    quota.Tokens
	}{
		{"input", c.Input},
		{"cache_read", c.CacheRead},
		{"cache_write", c.CacheWrite},
		{"cache_write_1h", c.CacheWrite1h},
		{"output", c.Output},
		{"reasoning", c.Reasoning},
	} {
		if err := f(class.name, class.n); err != nil {
			return err
		}
	}
	return nil
}

// Check returns a [CallError] that names the class unless every count is 0 to
// quota.MaxAmount.
func (c TokenClasses) Check() error {
	return c.each(func(name string, n quota.Tokens) error {
		if n.Amount().Check() != nil {
			return invalid("usage.tokens."+name, "%d is not between 0 and %d", int64(n), int64(quota.MaxAmount))
		}
		return nil
	})
}

// TotalInput is all prompt tokens, cached or not. It fails as Check does, or
// when the sum passes quota.MaxAmount.
func (c TokenClasses) TotalInput() (quota.Tokens, error) {
	return c.total("input", c.Input, c.CacheRead, c.CacheWrite, c.CacheWrite1h)
}

// TotalOutput is all generated tokens, reasoning included. It fails as Check
// does, or when the sum passes quota.MaxAmount.
func (c TokenClasses) TotalOutput() (quota.Tokens, error) {
	return c.total("output", c.Output, c.Reasoning)
}

func (c TokenClasses) total(what string, parts ...quota.Tokens) (quota.Tokens, error) {
	if err := c.Check(); err != nil {
		return 0, err
	}
	var sum quota.Tokens // at most 4 parts of 2^53-1: can't leave 64 bits
	for _, n := range parts {
		sum += n
	}
	if sum.Amount().Check() != nil {
		return 0, invalid("usage.tokens", "the %s classes sum to %d, above %d", what, int64(sum), int64(quota.MaxAmount))
	}
	return sum, nil
}

// Amounts returns the amounts of the token meters: input_tokens,
// output_tokens and tokens, all three stated even when zero. It fails when a
// class or a sum leaves 0 to quota.MaxAmount.
func (c TokenClasses) Amounts() (quota.Amounts, error) {
	input, err := c.TotalInput()
	if err != nil {
		return nil, err
	}
	output, err := c.TotalOutput()
	if err != nil {
		return nil, err
	}
	return tokenAmounts(input, output)
}

func tokenAmounts(input, output quota.Tokens) (quota.Amounts, error) {
	total, err := input.Add(output)
	if err != nil || total.Amount().Check() != nil {
		return nil, invalid("tokens", "input and output tokens sum to more than %d", int64(quota.MaxAmount))
	}
	return quota.Amounts{
		quota.MeterInputTokens:  input.Amount(),
		quota.MeterOutputTokens: output.Amount(),
		quota.MeterTokens:       total.Amount(),
	}, nil
}
