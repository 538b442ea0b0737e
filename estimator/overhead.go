package estimator

import (
	"strings"

	"github.com/budgetd/budgetd/quota"
)

// overhead is what a request costs in input tokens besides its text.
type overhead struct {
	perRequest quota.Tokens // priming of the reply, and what the provider puts before the messages
	perMessage quota.Tokens // besides its role and content
	perName    quota.Tokens // besides the name
	tools      quota.Tokens // once, if there are tools
	perTool    quota.Tokens // besides its JSON text
	perImage   quota.Tokens // 0: images can't be bounded
	documented bool         // perRequest, perMessage and perName are the provider's own figures
}

// The overheads, with their sources.
//
// OpenAI chat: the OpenAI Cookbook, "How to count tokens with tiktoken":
// 3 tokens a message and 1 a name (4 and -1 for gpt-3.5-turbo-0301, of which
// the 4 is used), 3 to prime the reply. Documented up to GPT-4o and GPT-4.1;
// used for later models without the claim to be exact.
//
// OpenAI tools: the Cookbook's function counting, at most 10 a function and 12
// once, on top of the JSON text, which is longer than the notation that it is
// turned into.
//
// OpenAI images: the vision guide. The dearest image of GPT-4o mini is 8 tiles
// (768 x 2,048): 2,833 + 8 x 5,667 = 48,169 tokens. Of all others the dearest
// is 10,000 patches ("original" detail) x 1.2 = 12,000; 1,536 patches x 2.46
// and 85 + 8 x 170 are below.
//
// gpt-oss: the harmony format puts a system message of some 70 tokens before
// the conversation and 5 markers round each message; 120 and 8 are used.
//
// Anthropic: the tool use guide lists system prompts of up to 530 tokens for
// requests with tools; 1,000 is used, since the figures of newer models vary.
// The vision guide's dearest image is 4,784 tokens (2,576 pixels on the long
// edge).
//
// Gemini: the guides' dearest images are 16 tiles of 768 x 768 at 258 tokens
// (3,072 x 3,072, the largest that is not scaled down) = 4,128, and 2,240
// tokens at ultra high media resolution.
//
// Others, and messages outside OpenAI: chat templates spend 3 to 7 tokens a
// message and up to 30 on a default system prompt (the published templates of
// Llama 3, Qwen 2.5, DeepSeek V3, Gemma 3); 10 a message and 40 a request are
// used.
func overheadOf(m Model) overhead {
	other := overhead{perRequest: 40, perMessage: 10, perName: 5, tools: 1000, perTool: 20}
	switch {
	case m.Encoding == O200kHarmony:
		return overhead{perRequest: 120, perMessage: 8, perName: 5, tools: 100, perTool: 20}
	case m.Encoding != "":
		o := overhead{perRequest: 3, perMessage: 3, perName: 1, tools: 12, perTool: 10, perImage: 12_000, documented: documentedChat(m.ID)}
		if strings.Contains(m.ID, "gpt-4o-mini") {
			o.perImage = 48_169
		}
		if m.ID == "gpt-3.5-0301" {
			o.perMessage = 4
		}
		return o
	case m.Rule.Family == "claude":
		other.perImage = 4_784
	case m.Provider == "google":
		other.perImage = 4_128
	}
	return other
}

// documentedChat says whether OpenAI documents the chat overhead of a model.
func documentedChat(id string) bool {
	id = strings.TrimPrefix(strings.ToLower(id), "ft:")
	for _, prefix := range []string{"gpt-3.5", "gpt-35", "gpt-4", "chatgpt-4o"} {
		if strings.HasPrefix(id, prefix) {
			return true
		}
	}
	return false
}
