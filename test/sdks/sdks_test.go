package sdks

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"

	"github.com/budgetd/budgetd/test/provider"
)

// heard is what an SDK made of an answer.
type heard struct {
	Text      string
	Tool      string // name and arguments
	Prompt    int64  // tokens
	Cached    int64
	Answer    int64 // with reasoning
	Reasoning int64
}

// clients are the three SDKs, as a program makes them.
type clients struct {
	openai    openai.Client
	anthropic anthropic.Client
	gemini    *genai.Client
}

// bases are the base URLs that the SDKs are given.
type bases struct{ openai, anthropic, gemini string }

// newClients makes the SDKs with a key and an HTTP client. They try three times,
// which is the default of two of them.
func newClients(t *testing.T, base bases, key string, client *http.Client) clients {
	t.Helper()
	attempts, delay := int32(3), 0.001
	g, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		APIKey: key, Backend: genai.BackendGeminiAPI, HTTPClient: client,
		HTTPOptions: genai.HTTPOptions{
			BaseURL:      base.gemini,
			RetryOptions: &genai.HTTPRetryOptions{Attempts: &attempts, InitialDelay: &delay},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return clients{
		openai: openai.NewClient(openaioption.WithBaseURL(base.openai), openaioption.WithAPIKey(key), openaioption.WithHTTPClient(client)),
		anthropic: anthropic.NewClient(anthropicoption.WithBaseURL(base.anthropic), anthropicoption.WithAPIKey(key),
			anthropicoption.WithHTTPClient(client)),
		gemini: g,
	}
}

// prompt is what every call asks. As a user's message OpenAI counts it as 8
// tokens: 3 of the message, 1 of the role, 1 of the text, 3 of the answer's
// beginning.
const (
	prompt       = "Hello"
	promptTokens = 8
)

const maxOutput = 200

// The models that are asked.
const (
	gpt    = "gpt-4o-mini"
	vector = "text-embedding-3-small"
	claude = "claude-sonnet-4-5"
	flash  = "gemini-2.5-flash"
)

// endpoint is one call of one SDK. When it fails, it returns what it heard
// before.
type endpoint struct {
	name  string
	model string
	call  func(context.Context, clients, provider.Script) (heard, error)
}

var (
	chatPlain      = endpoint{"openai chat", gpt, callChat}
	chatStream     = endpoint{"openai chat streamed", gpt, streamChat}
	chatUsage      = endpoint{"openai chat streamed with usage", gpt, streamChatWithUsage}
	responsesPlain = endpoint{"openai responses", gpt, callResponses}
	responseStream = endpoint{"openai responses streamed", gpt, streamResponses}
	embeddings     = endpoint{"openai embeddings", vector, callEmbeddings}
	messagesPlain  = endpoint{"anthropic messages", claude, callMessages}
	messagesStream = endpoint{"anthropic messages streamed", claude, streamMessages}
	generatePlain  = endpoint{"gemini generateContent", flash, callGenerate}
	generateStream = endpoint{"gemini streamGenerateContent", flash, streamGenerate}
)

// prices is the list of the provider, and, as a file, the broker's.
var prices = map[string]provider.Price{
	gpt:    {Input: 150_000_001, CacheRead: 75_000_003, Output: 600_000_007},
	vector: {Input: 20_000_001},
	claude: {Input: 3_000_000_001, CacheRead: 300_000_003, CacheWrite: 3_750_000_007, CacheWrite1h: 6_000_000_011, Output: 15_000_000_013},
	flash:  {Input: 300_000_001, CacheRead: 30_000_003, Output: 2_500_000_007},
}

func chatParams() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:               gpt,
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
		MaxCompletionTokens: openai.Int(maxOutput),
	}
}

func openaiScript(s provider.Script) openaioption.RequestOption {
	return openaioption.WithHeader(provider.Header, s.String())
}

func callChat(ctx context.Context, c clients, s provider.Script) (heard, error) {
	answer, err := c.openai.Chat.Completions.New(ctx, chatParams(), openaiScript(s))
	if err != nil {
		return heard{}, err
	}
	return heardChat(answer.Choices, answer.Usage), nil
}

func heardChat(choices []openai.ChatCompletionChoice, usage openai.CompletionUsage) heard {
	h := heard{
		Prompt: usage.PromptTokens, Cached: usage.PromptTokensDetails.CachedTokens,
		Answer: usage.CompletionTokens, Reasoning: usage.CompletionTokensDetails.ReasoningTokens,
	}
	for _, choice := range choices {
		h.Text += choice.Message.Content
		for _, call := range choice.Message.ToolCalls {
			h.Tool += call.Function.Name + call.Function.Arguments
		}
	}
	return h
}

func streamChat(ctx context.Context, c clients, s provider.Script) (heard, error) {
	return streamChatOf(ctx, c, s, chatParams())
}

func streamChatWithUsage(ctx context.Context, c clients, s provider.Script) (heard, error) {
	params := chatParams()
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	return streamChatOf(ctx, c, s, params)
}

func streamChatOf(ctx context.Context, c clients, s provider.Script, params openai.ChatCompletionNewParams) (heard, error) {
	stream := c.openai.Chat.Completions.NewStreaming(ctx, params, openaiScript(s))
	defer stream.Close()
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		all.AddChunk(stream.Current())
	}
	return heardChat(all.Choices, all.Usage), stream.Err()
}

func responseParams() responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model:           gpt,
		Input:           responses.ResponseNewParamsInputUnion{OfString: openai.String(prompt)},
		MaxOutputTokens: openai.Int(maxOutput),
	}
}

func callResponses(ctx context.Context, c clients, s provider.Script) (heard, error) {
	answer, err := c.openai.Responses.New(ctx, responseParams(), openaiScript(s))
	if err != nil {
		return heard{}, err
	}
	return heardResponse(answer), nil
}

func heardResponse(answer *responses.Response) heard {
	h := heard{
		Text:   answer.OutputText(),
		Prompt: answer.Usage.InputTokens, Cached: answer.Usage.InputTokensDetails.CachedTokens,
		Answer: answer.Usage.OutputTokens, Reasoning: answer.Usage.OutputTokensDetails.ReasoningTokens,
	}
	for _, item := range answer.Output {
		if item.Type == "function_call" {
			call := item.AsFunctionCall()
			h.Tool += call.Name + call.Arguments
		}
	}
	return h
}

func streamResponses(ctx context.Context, c clients, s provider.Script) (heard, error) {
	stream := c.openai.Responses.NewStreaming(ctx, responseParams(), openaiScript(s))
	defer stream.Close()
	var h heard
	var text, arguments string
	for stream.Next() {
		switch event := stream.Current().AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text += event.Delta
		case responses.ResponseFunctionCallArgumentsDeltaEvent:
			arguments += event.Delta
		case responses.ResponseCompletedEvent:
			h = heardResponse(&event.Response)
		}
	}
	if s.Tool != nil && arguments != s.Tool.Arguments {
		h.Tool += " but in pieces " + arguments
	}
	h.Text = text
	return h, stream.Err()
}

func callEmbeddings(ctx context.Context, c clients, s provider.Script) (heard, error) {
	answer, err := c.openai.Embeddings.New(ctx, openai.EmbeddingNewParams{
		Model: vector,
		Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{prompt, prompt}},
	}, openaiScript(s))
	if err != nil {
		return heard{}, err
	}
	h := heard{Prompt: answer.Usage.PromptTokens}
	for _, entry := range answer.Data {
		numbers, err := json.Marshal(entry.Embedding)
		if err != nil {
			return h, err
		}
		h.Text += string(numbers)
	}
	return h, nil
}

func messageParams() anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: anthropic.Model(claude), MaxTokens: maxOutput,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
	}
}

func anthropicScript(s provider.Script) anthropicoption.RequestOption {
	return anthropicoption.WithHeader(provider.Header, s.String())
}

func callMessages(ctx context.Context, c clients, s provider.Script) (heard, error) {
	answer, err := c.anthropic.Messages.New(ctx, messageParams(), anthropicScript(s))
	if err != nil {
		return heard{}, err
	}
	return heardMessage(answer), nil
}

func heardMessage(m *anthropic.Message) heard {
	h := heard{
		Prompt: m.Usage.InputTokens + m.Usage.CacheReadInputTokens + m.Usage.CacheCreationInputTokens,
		Cached: m.Usage.CacheReadInputTokens,
		Answer: m.Usage.OutputTokens, Reasoning: m.Usage.OutputTokensDetails.ThinkingTokens,
	}
	for _, block := range m.Content {
		switch block.Type {
		case "text":
			h.Text += block.Text
		case "tool_use":
			h.Tool += block.Name + string(block.Input)
		}
	}
	return h
}

func streamMessages(ctx context.Context, c clients, s provider.Script) (heard, error) {
	stream := c.anthropic.Messages.NewStreaming(ctx, messageParams(), anthropicScript(s))
	defer stream.Close()
	var all anthropic.Message
	for stream.Next() {
		if err := all.Accumulate(stream.Current()); err != nil {
			return heardMessage(&all), err
		}
	}
	return heardMessage(&all), stream.Err()
}

func geminiConfig(s provider.Script) *genai.GenerateContentConfig {
	return &genai.GenerateContentConfig{
		MaxOutputTokens: maxOutput,
		HTTPOptions:     &genai.HTTPOptions{Headers: http.Header{provider.Header: {s.String()}}},
	}
}

func callGenerate(ctx context.Context, c clients, s provider.Script) (heard, error) {
	answer, err := c.gemini.Models.GenerateContent(ctx, flash, genai.Text(prompt), geminiConfig(s))
	if err != nil {
		return heard{}, err
	}
	var h heard
	h.generated(answer)
	return h, nil
}

// generated adds a chunk, which has the counts so far.
func (h *heard) generated(answer *genai.GenerateContentResponse) {
	if usage := answer.UsageMetadata; usage != nil {
		h.Prompt, h.Cached = int64(usage.PromptTokenCount), int64(usage.CachedContentTokenCount)
		h.Answer, h.Reasoning = int64(usage.CandidatesTokenCount+usage.ThoughtsTokenCount), int64(usage.ThoughtsTokenCount)
	}
	for _, candidate := range answer.Candidates {
		for _, part := range candidate.Content.Parts {
			switch {
			case part.FunctionCall != nil:
				arguments, _ := json.Marshal(part.FunctionCall.Args) // was JSON
				h.Tool += part.FunctionCall.Name + string(arguments)
			case !part.Thought:
				h.Text += part.Text
			}
		}
	}
}

func streamGenerate(ctx context.Context, c clients, s provider.Script) (heard, error) {
	var h heard
	for answer, err := range c.gemini.Models.GenerateContentStream(ctx, flash, genai.Text(prompt), geminiConfig(s)) {
		if err != nil {
			return h, err
		}
		h.generated(answer)
	}
	return h, nil
}
