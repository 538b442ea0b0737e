// Package sdks holds the official Go SDKs of OpenAI, Anthropic and Gemini, and
// the Node SDKs of the first two, against test/provider: alone, through the
// client's Transport, and through budgetd proxy. It is a module of its own, so that
// the SDKs and what they need are no dependency of budgetd. The Node packages are
// those of testdata/node/package-lock.json; .ci/install puts them beside it.
package sdks
