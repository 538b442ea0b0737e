package estimator

import (
	"strings"

	"github.com/budgetd/budgetd/quota"
)

// overhead is what a request costs in input tokens besides its text.
type overhead struct {
	perRequest Figures // priming of the reply, and what the provider puts before the messages
	perMessage Figures // besides its role and content
	perName    Figures // besides the name
	tools      Figures // once, if there are tools
	perTool    Figures // besides its JSON text
	method     string  // documentedOverhead or assumedOverhead
}

// Where overheads come from.
const (
	documentedOverhead = "documented" // the provider's own figures
	assumedOverhead    = "assumed"    // figures of other models, with room above
)

// The overheads, with their sources.
//
// OpenAI chat: the OpenAI Cookbook, "How to count tokens with tiktoken":
// 3 tokens a message and 1 a name (4 and -1 for gpt-3.5-turbo-0301, of which
// the 4 is used), 3 to prime the reply. Documented up to GPT-4o and GPT-4.1.
// Later models are taken to cost the same, with room above.
//
// OpenAI tools: the Cookbook's function counting (toolschema.go), at most 10 a
// function and 12 once; the ceiling has them on top of the JSON text, which is
// longer than the notation that it is turned into.
//
// gpt-oss: the harmony format puts a system message of some 70 tokens before
// the conversation and 5 markers round each message; 120 and 8 are used.
//
// Anthropic: the tool use guide lists system prompts of 159 to 530 tokens for
// requests with tools, 346 for most models; the ceiling is 1,000, since the
// figures of newer models vary.
//
// Others, and messages outside OpenAI: chat templates spend 3 to 7 tokens a
// message and up to 30 on a default system prompt (the published templates of
// Llama 3, Qwen 2.5, DeepSeek V3, Gemma 3); 10 a message and 40 a request are
// the ceilings.
func overheadOf(m Model) overhead {
	switch {
	case m.Encoding == O200kHarmony:
		return overhead{
			perRequest: Figures{0, 70, 120}, perMessage: Figures{0, 5, 8}, perName: Figures{0, 1, 5},
			tools: Figures{0, 50, 100}, perTool: Figures{0, 10, 20}, method: assumedOverhead,
		}
	case m.Encoding != "" && documentedChat(m.ID):
		o := overhead{
			perRequest: exactly(3), perMessage: exactly(3), perName: exactly(1),
			tools: Figures{0, 12, 12}, perTool: upTo(10), method: documentedOverhead,
		}
		if m.ID == "gpt-3.5-0301" {
			o.perMessage = exactly(4)
		}
		return o
	case m.Encoding != "":
		return overhead{
			perRequest: Figures{0, 3, 8}, perMessage: Figures{0, 3, 5}, perName: Figures{0, 1, 2},
			tools: Figures{0, 12, 24}, perTool: Figures{0, 10, 20}, method: assumedOverhead,
		}
	}
	return overhead{
		perRequest: Figures{0, 10, 40}, perMessage: Figures{0, 5, 10}, perName: Figures{0, 1, 5},
		tools: Figures{0, 346, 1000}, perTool: Figures{0, 10, 20}, method: assumedOverhead,
	}
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

// addOverheads adds what the frames of the conversation cost.
func (t *tally) addOverheads() {
	o := overheadOf(t.model)
	if t.isChat {
		t.add(KindRequest, 1, o.perRequest, o.method)
		t.add(KindMessages, t.messages, o.perMessage.times(t.messages), o.method)
		t.add(KindNames, t.names, o.perName.times(t.names), o.method)
	}
	if t.tools > 0 {
		// The tools' own text is in already; this part is what comes round it.
		t.add(KindTools, 0, o.tools.plus(o.perTool.times(t.tools)), t.method)
	}
}

// anthropicTool is what Anthropic adds for one of its own tools that the client
// runs: the tool use guide and the pages of each tool. The computer use tool
// has a system prompt of its own, 466 to 499 tokens, besides its 735.
func anthropicTool(kind string) (quota.Tokens, bool) {
	for _, tool := range []struct {
		prefix string
		tokens quota.Tokens
	}{{"bash_", 245}, {"text_editor_", 700}, {"computer_", 735 + 499}} {
		if strings.HasPrefix(kind, tool.prefix) {
			return tool.tokens, true
		}
	}
	return 0, false
}
