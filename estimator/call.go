package estimator

import "github.com/budgetd/budgetd/quota"

// Message is one turn of a chat.
type Message struct {
	Role    string // "user" if empty
	Name    string // optional
	Content string
}

// Call is what is asked of a model. The input is stated in exactly one of
// Prompt, Messages, ProviderRequest or InputTokens; InputTokens may also
// accompany a ProviderRequest, whose text is then not looked at.
type Call struct {
	// Provider is who serves the call ("openai", "anthropic", "gemini", ...;
	// the catalogue's names and aliases). Empty: found by the model. For a
	// ProviderRequest it also says whose body format it is.
	Provider string

	// Model is the id that the provider knows. May be empty when the
	// ProviderRequest names it; if both do, they must agree. At most 256 bytes.
	Model string

	Prompt   string
	Messages []Message

	// ProviderRequest is the body that will be sent to the provider, as parsed
	// JSON: maps, slices, strings, bools, nil and float64, json.Number or
	// integers. It is only read.
	ProviderRequest map[string]any

	InputTokens *quota.Tokens // the caller's own count, 0 to quota.MaxAmount

	// MaxOutputTokens bounds each choice, 0 to quota.MaxAmount. If nil, the
	// provider request's own bound, else the model's maximum from the
	// catalogue, else the call is refused. If a provider request states a
	// bound too, the larger counts.
	MaxOutputTokens *quota.Tokens

	// N is how many choices are asked for, 0 (one, or what the provider
	// request says) to [MaxChoices].
	N int
}

// MaxChoices is the largest number of choices of one call, a bound of our own
// (OpenAI documents 128 for n).
const MaxChoices = 128

// Estimate is what a call takes: input and output in three figures, of which
// the ceilings are held, and the cost of the ceilings.
type Estimate struct {
	Provider string // canonical, "" when unknown
	Model    string // canonical id of the catalogue entry that matched; as asked when none did

	Input Figures // prompt tokens: the sum of Parts
	Parts []Part  // what the input is made of; at most one of each kind and method

	// Output is all choices together, reasoning included: the floor is 0, the
	// ceiling MaxOutputTokens x N. The expected figure is the ceiling too: the
	// request alone tells no more. All are 0 for embeddings.
	Output Figures

	MaxOutputTokens quota.Tokens // ceiling of one choice
	N               int          // choices

	// Unbounded is the field in which the call could have stated how much output it
	// lets the model generate, and did not: MaxOutputTokens is then the most that the
	// model generates. "" where it did, and where there is no output.
	Unbounded string

	Lines []Line        // what Cost is made of: the ceilings by the class that each is priced as
	Cost  quota.NanoUSD // worst case for the ceilings of Input and Output at Price, rounded up once

	// OutputPrice is what one token of output adds to Cost, the dearest that it may
	// be, and CostRest what rounding up added, in millionths of a
	// nano-USD, 0 to 999,999. So the worst case of another output is known without
	// another estimate: a step in the price depends on the input alone.
	OutputPrice PerMillion
	CostRest    int64

	Method   string   // how the text was counted: "caller", "tiktoken/<encoding>", "rule/<family>" or "rule/<family> learned"
	Encoding Encoding // the encoding that counted; "" for the caller's own count

	// RuleInput is the ceiling of the input by the rule as it is stated, before
	// anything learned, for [Estimator.Learn]; 0 when the input is not by a rule
	// alone, or too small to learn from.
	RuleInput quota.Tokens

	// Exact says that Input is a count by the model's own public encoding with
	// documented overheads only, so that its three figures are one. Otherwise
	// the ceiling is meant as one: a rule's factor, schemas counted as their
	// JSON text and media at the most their provider documents are on the high
	// side. The caller's own count is taken on trust.
	Exact bool

	Price        Price
	PriceVersion string // Price.Version
}

// Line is one term of a worst case: tokens at the price of the dearest class
// that they may be billed as.
type Line struct {
	Class  string // "input", "cache_write", "output" and so on, as in a price
	Tokens quota.Tokens
	Price  PerMillion
}

// Amounts returns the amounts of the four meters that an estimate speaks of,
// by the ceilings: input_tokens, output_tokens, tokens and cost. It fails when
// one passes quota.MaxAmount.
func (e Estimate) Amounts() (quota.Amounts, error) {
	amounts, err := tokenAmounts(e.Input.Ceiling, e.Output.Ceiling)
	if err != nil {
		return nil, err
	}
	if e.Cost.Amount().Check() != nil {
		return nil, invalid("cost", "%d nano-USD is not between 0 and %d", int64(e.Cost), int64(quota.MaxAmount))
	}
	amounts[quota.MeterCost] = e.Cost.Amount()
	return amounts, nil
}

// Images is how many images the call has.
func (e Estimate) Images() int {
	n := int64(0)
	for _, part := range e.Parts {
		if part.Kind == KindImages {
			n += part.Count
		}
	}
	return int(n)
}
