// Package provider stands in tests for the providers of models: OpenAI (chat
// completions, responses, embeddings), Anthropic (messages) and Gemini
// (generateContent, streamGenerateContent), in their wire formats, with their
// ways of authentication, their errors and their rate limit headers.
//
// The formats are those that the providers document and their SDKs read:
//
//   - https://platform.openai.com/docs/api-reference/chat/streaming
//   - https://platform.openai.com/docs/api-reference/responses-streaming
//   - https://docs.anthropic.com/en/docs/build-with-claude/streaming
//   - https://ai.google.dev/api/generate-content
//
// What a call does is scripted by the call itself, in the header [Header], so
// that a test shows both sides in one place; SDKs and proxies pass a header on
// that they do not know. A call without a script says hello.
//
// The provider keeps books of its own: what it billed for each call, in disjoint
// classes of tokens and in nano-USD. A test compares them with those of the
// broker.
package provider
