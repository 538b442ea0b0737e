// Package encoding counts the tokens of text in the public encodings of OpenAI
// models. It makes no ids: a count is all that an estimate needs.
//
// A text is split into pieces by the encoding's pre-tokenizer, and each piece
// into tokens by byte pair encoding. The pre-tokenizers are written by hand
// after the patterns that openai/tiktoken publishes
// (tiktoken_ext/openai_public.py), and take time in proportion to the text. A
// piece of n bytes is merged in a time of at most n log n, whatever it holds.
// Nothing is allocated for texts of ordinary pieces, and working memory is
// reused for long ones.
//
// Text is always ordinary text: what looks like a special token, such as
// <|endoftext|>, is counted as the text it is. A byte that is not UTF-8 counts
// as U+FFFD, which is what a JSON body makes of it.
//
// The counts are those of the npm package tiktoken, which is openai/tiktoken in
// WebAssembly; docs/estimator.md lists where tiktoken-go differs from it.
//
// Vocabularies are embedded. Each is loaded when it is first needed, once, and
// shared; everything here is safe for concurrent use.
package encoding
