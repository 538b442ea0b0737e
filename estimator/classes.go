package estimator

import (
	"github.com/budgetd/budgetd/estimator/catalogue"
	"github.com/budgetd/budgetd/quota"
)

// TokenClasses is what one call used, in disjoint classes: each token is in
// exactly one of them. Every count is 0 to quota.MaxAmount.
type TokenClasses struct {
	Input          quota.Tokens // prompt tokens of text, neither read from nor written to a cache
	InputAudio     quota.Tokens // prompt tokens of sound, not read from a cache
	InputImage     quota.Tokens // prompt tokens of pictures, not read from a cache
	InputVideo     quota.Tokens // prompt tokens of video, not read from a cache
	CacheRead      quota.Tokens // prompt tokens read from the provider's cache, except the two below
	CacheReadAudio quota.Tokens // prompt tokens of sound read from the provider's cache
	CacheReadImage quota.Tokens // prompt tokens of pictures read from the provider's cache
	CacheWrite     quota.Tokens // prompt tokens written to a cache, except one-hour writes
	CacheWrite1h   quota.Tokens // prompt tokens written to a one-hour cache (Anthropic)
	Output         quota.Tokens // generated tokens of text, without reasoning
	OutputAudio    quota.Tokens // generated tokens of sound
	OutputImage    quota.Tokens // generated tokens of pictures
	OutputVideo    quota.Tokens // generated tokens of video
	Reasoning      quota.Tokens // generated tokens of hidden reasoning
}

// numberOfClasses is how many classes there are. The inputs come first.
const (
	numberOfInputs  = 9
	numberOfClasses = 14
)

// classNames are the names that messages, files and policies use, in the order
// of the fields.
var classNames [numberOfClasses]string = catalogue.Classes

// List returns the counts in the order of the fields.
func (c *TokenClasses) List() [numberOfClasses]quota.Tokens {
	return [...]quota.Tokens{
		c.Input, c.InputAudio, c.InputImage, c.InputVideo,
		c.CacheRead, c.CacheReadAudio, c.CacheReadImage, c.CacheWrite, c.CacheWrite1h,
		c.Output, c.OutputAudio, c.OutputImage, c.OutputVideo, c.Reasoning,
	}
}

// TokenClassesOf is the opposite of [TokenClasses.List].
func TokenClassesOf(counts [numberOfClasses]quota.Tokens) TokenClasses {
	return TokenClasses{
		Input: counts[0], InputAudio: counts[1], InputImage: counts[2], InputVideo: counts[3],
		CacheRead: counts[4], CacheReadAudio: counts[5], CacheReadImage: counts[6], CacheWrite: counts[7], CacheWrite1h: counts[8],
		Output: counts[9], OutputAudio: counts[10], OutputImage: counts[11], OutputVideo: counts[12], Reasoning: counts[13],
	}
}

// Check returns a [CallError] that names the class unless every count is 0 to
// quota.MaxAmount.
func (c TokenClasses) Check() error {
	for i, n := range c.List() {
		if n.Amount().Check() != nil {
			return invalid("usage.tokens."+classNames[i], "%d is not between 0 and %d", int64(n), int64(quota.MaxAmount))
		}
	}
	return nil
}

// TotalInput is all prompt tokens, cached or not. It fails as Check does, or
// when the sum passes quota.MaxAmount.
func (c TokenClasses) TotalInput() (quota.Tokens, error) {
	counts := c.List()
	return c.total("input", counts[:numberOfInputs])
}

// TotalOutput is all generated tokens, reasoning included. It fails as Check
// does, or when the sum passes quota.MaxAmount.
func (c TokenClasses) TotalOutput() (quota.Tokens, error) {
	counts := c.List()
	return c.total("output", counts[numberOfInputs:])
}

func (c TokenClasses) total(what string, parts []quota.Tokens) (quota.Tokens, error) {
	if err := c.Check(); err != nil {
		return 0, err
	}
	var sum quota.Tokens // at most 9 parts of 2^53-1: can't leave 64 bits
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
