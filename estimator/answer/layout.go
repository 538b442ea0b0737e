// Package answer reads what a provider's answer says that a call used, plain or
// streamed, as it passes by. It keeps the provider's own usage object, so that a
// client can hand it on without a catalogue of prices, and the text that was seen
// for an answer that was cut before its usage came. It needs the standard library
// only.
package answer

import "strings"

// Layout is how a provider writes its requests, answers and usage objects.
type Layout string

// The layouts that are known.
const (
	OpenAI    Layout = "openai"    // chat completions, responses, completions, embeddings, and all that serve them
	Anthropic Layout = "anthropic" // messages
	Gemini    Layout = "gemini"    // generateContent
	Bedrock   Layout = "bedrock"   // Converse
)

// layouts maps the names of providers to their layout. Those that serve
// OpenAI's own layout are named, so that a typo is refused.
var layouts = map[string]Layout{
	"openai": OpenAI, "azure": OpenAI, "azure_openai": OpenAI, "azure-openai": OpenAI,
	"mistral": OpenAI, "mistralai": OpenAI, "deepseek": OpenAI, "x-ai": OpenAI, "xai": OpenAI,
	"moonshotai": OpenAI, "moonshot": OpenAI, "minimax": OpenAI, "zhipuai": OpenAI, "zhipu": OpenAI,
	"groq": OpenAI, "cerebras": OpenAI, "together": OpenAI, "together_ai": OpenAI,
	"togetherai": OpenAI, "together-ai": OpenAI, "fireworks": OpenAI, "fireworks_ai": OpenAI,
	"openrouter": OpenAI, "vllm": OpenAI, "voyageai": OpenAI, "voyage": OpenAI,
	"anthropic": Anthropic,
	"google":    Gemini, "gemini": Gemini, "vertex": Gemini, "vertex_ai": Gemini,
	"vertexai": Gemini, "google_genai": Gemini,
	"bedrock": Bedrock, "aws": Bedrock, "amazon": Bedrock, "aws_bedrock": Bedrock, "aws-bedrock": Bedrock,
	"amazon_bedrock": Bedrock, "amazon-bedrock": Bedrock, "bedrock_converse": Bedrock,
}

// LayoutOf returns the layout of a provider, whose name may be in any case. ok is
// false for one that is not known.
func LayoutOf(provider string) (layout Layout, ok bool) {
	layout, ok = layouts[strings.ToLower(provider)]
	return layout, ok
}

// LayoutOrOpenAI is LayoutOf for an upstream, whose name may be the operator's own:
// OpenAI's layout, which such servers speak, for one that is not known.
func LayoutOrOpenAI(provider string) Layout {
	if layout, ok := LayoutOf(provider); ok {
		return layout
	}
	return OpenAI
}
