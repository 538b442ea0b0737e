// Package estimator says, before a metered LLM call is made, how many tokens
// it will read, how many it can write at most, and what it can cost at most;
// and, after the call, what the provider's usage object means in disjoint
// token classes and in nano-USD.
//
// It is a pure library: no network, no clock, no goroutine that outlives a
// call. Token encodings and the price catalogue are embedded in the binary and
// loaded on first use, once, and shared; everything here is safe for
// concurrent use.
//
// # Three figures
//
// Every estimate of tokens is a floor, an expected number and a ceiling
// ([Figures]); the ceilings are held and priced. [Estimate.Parts] says what the
// input is made of, each part with the method that gave its figures.
//
// Text is counted in one of three ways, named in [Estimate.Method]:
//
//   - "caller": the caller counted ([Call.InputTokens]).
//   - "tiktoken/<encoding>": the model's own public encoding, in ordinary
//     mode: text such as <|endoftext|> is text, never a special token.
//   - "rule/<family>": a stated conservative rule for models whose tokenizer
//     is not public (package family); "rule/<family> learned" where it was
//     sharpened by settled calls ([Estimator.Learn]).
//
// On top come the overheads that the providers document (per message, per
// name, per tool; overhead.go), and media by their providers' formulas: images
// (image.go), sound (audio.go) and documents (document.go). What a request only
// names, such as a file or an earlier answer, is at most what the model reads.
// [Estimate.Exact] is true only where the three figures are one.
//
// # What a call used
//
// [NormalizeUsage] reads a provider's usage object, and [Stream] the events of a
// streamed answer, as they pass by.
//
// # What is refused
//
// An estimate must not be too low, so input whose size can't be bounded from
// the call alone (server-side tools such as web search, media for models without
// a documented formula) is refused by name with a [CallError] that asks for
// input_tokens. A model without a price is refused with an [UnknownModelError]
// or priced at the configured ceiling: never $0. Fees that are not per token (a
// web search, a code session) are not part of an estimate.
package estimator
