// Package sdks holds the official Go SDKs of OpenAI, Anthropic and Gemini
// against test/provider: alone, through the client's Transport, and through
// budgetd proxy. It is a module of its own, so that the SDKs and what they need
// are no dependency of budgetd.
package sdks
