package estimator

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"

	"github.com/budgetd/budgetd/estimator/family"
	"github.com/budgetd/budgetd/quota"
)

// Bounds of a stream.
const (
	// MaxEventBytes bounds one event: pictures come as base64 in one.
	MaxEventBytes = 16 << 20
	// MaxUsageBytes bounds the usage object of an event.
	MaxUsageBytes = 64 << 10
	// maxSeenText is how much of the answer's text is kept before it is counted
	// and dropped.
	maxSeenText = 64 << 10
)

const eventField = "event"

// Stream follows the events of one streamed answer, and says what they used. It
// keeps the last usage object and at most 64 KiB of text, whatever the length of
// the answer. It is for one goroutine.
type Stream struct {
	format format
	model  Model

	last   []byte         // the last usage object of a layout whose last one stands whole
	merged map[string]any // the usage objects of a layout that adds to them event by event
	tier   []byte         // JSON of the service tier as it was last named
	config []byte         // JSON of Bedrock's performanceConfig
	output bool           // an object told the output
	ended  bool

	text    []byte  // of the answer, not counted yet
	counted Figures // tokens of the text before that
}

// Streamed is what was seen of a streamed answer.
type Streamed struct {
	// Use is what the provider told. Where it told no output, or the stream was
	// cut after it last did, the output is at least the expected tokens of the
	// text that was seen.
	Use Use

	// Seen is the tokens of the text that was seen: the answer, its tool calls
	// and its reasoning as far as they were shown. It is zero where the provider
	// told all.
	Seen Figures

	Ended      bool // a terminal event was seen; false: the stream was cut, or goes on
	ToldInput  bool // the provider told the input; false: Use has none
	ToldOutput bool // the provider told the output, at least that up to some event
}

// NewStream follows an answer of a provider. The model says how text is counted
// when no usage object comes. It fails with a [CallError] for a provider whose
// layout is not known.
func NewStream(provider string, model Model) (*Stream, error) {
	f, err := formatOf(provider)
	if err != nil {
		return nil, err
	}
	return &Stream{format: f, model: model}, nil
}

// Event takes the next event: the data of a server-sent event, or the payload
// of a message of a Bedrock stream, bare or in an object that names its kind.
// The data is not kept. It fails with a [CallError] for what is no JSON object
// or over its bound; the stream then is as it was, and can go on.
func (s *Stream) Event(data []byte) error {
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0: // a comment that keeps the connection open
		return nil
	case string(data) == "[DONE]":
		s.ended = true
		return nil
	case len(data) > MaxEventBytes:
		return invalid(eventField, "is over %d bytes", MaxEventBytes)
	}
	switch s.format {
	case formatAnthropic:
		return s.anthropicEvent(data)
	case formatGemini:
		return s.geminiEvent(data)
	case formatBedrock:
		return s.bedrockEvent(data, false)
	default:
		return s.openAIEvent(data)
	}
}

// decode reads an event. Fields that hosts fill with other types than their
// makers are read as raw JSON.
func decode(data []byte, event any) error {
	if err := json.Unmarshal(data, event); err != nil {
		return invalid(eventField, "is not a JSON object of this provider's stream")
	}
	return nil
}

// given says whether a field is there and not null.
func given(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }

func (s *Stream) openAIEvent(data []byte) error {
	var event struct {
		Type    string          `json:"type"`
		Usage   json.RawMessage `json:"usage"`
		Tier    json.RawMessage `json:"service_tier"`
		Delta   json.RawMessage `json:"delta"` // responses: a piece of text
		Choices []struct {
			Delta struct {
				Content          json.RawMessage `json:"content"`
				Refusal          json.RawMessage `json:"refusal"`
				Reasoning        json.RawMessage `json:"reasoning"`
				ReasoningContent json.RawMessage `json:"reasoning_content"`
				ToolCalls        []struct {
					Function struct {
						Name      json.RawMessage `json:"name"`
						Arguments json.RawMessage `json:"arguments"`
					} `json:"function"`
				} `json:"tool_calls"`
			} `json:"delta"`
			Text   json.RawMessage `json:"text"`
			Finish json.RawMessage `json:"finish_reason"`
			Usage  json.RawMessage `json:"usage"` // Moonshot
		} `json:"choices"`
		Groq struct {
			Usage json.RawMessage `json:"usage"`
		} `json:"x_groq"`
		Response struct {
			Usage json.RawMessage `json:"usage"`
			Tier  json.RawMessage `json:"service_tier"`
		} `json:"response"`
	}
	if err := decode(data, &event); err != nil {
		return err
	}
	usage := event.Usage
	for _, choice := range event.Choices {
		if given(choice.Usage) {
			usage = choice.Usage
		}
	}
	for _, other := range []json.RawMessage{event.Groq.Usage, event.Response.Usage} {
		if given(other) {
			usage = other
		}
	}
	if err := s.replace(usage); err != nil {
		return err
	}
	s.served(event.Tier, event.Response.Tier)
	if !strings.Contains(event.Type, "audio.delta") { // base64
		s.saw(event.Delta)
	}
	for i := range event.Choices {
		choice := &event.Choices[i]
		s.saw(choice.Delta.Content)
		s.saw(choice.Delta.Refusal)
		s.saw(choice.Delta.ReasoningContent)
		s.saw(choice.Delta.Reasoning)
		s.saw(choice.Text)
		for j := range choice.Delta.ToolCalls {
			s.saw(choice.Delta.ToolCalls[j].Function.Name)
			s.saw(choice.Delta.ToolCalls[j].Function.Arguments)
		}
		s.ended = s.ended || given(choice.Finish)
	}
	switch event.Type {
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		s.ended = true
	}
	return nil
}

// shown is the object that Anthropic and Bedrock put a piece of the answer in.
type shown struct {
	Text     json.RawMessage `json:"text"`
	JSON     json.RawMessage `json:"partial_json"`
	Thinking json.RawMessage `json:"thinking"`
	Stop     json.RawMessage `json:"stop_reason"`
	ToolUse  struct {
		Input json.RawMessage `json:"input"`
	} `json:"toolUse"`
	Reasoning struct {
		Text json.RawMessage `json:"text"`
	} `json:"reasoningContent"`
}

func (s *Stream) sawShown(delta *shown) {
	for _, text := range [...]json.RawMessage{delta.Text, delta.JSON, delta.Thinking, delta.ToolUse.Input, delta.Reasoning.Text} {
		s.saw(text)
	}
}

// anthropicEvent: message_start has the input and a first output, message_delta
// the output so far, and perhaps the input again.
func (s *Stream) anthropicEvent(data []byte) error {
	var event struct {
		Type    string          `json:"type"`
		Usage   json.RawMessage `json:"usage"`
		Delta   shown           `json:"delta"`
		Message struct {
			Usage json.RawMessage `json:"usage"`
		} `json:"message"`
	}
	if err := decode(data, &event); err != nil {
		return err
	}
	if err := s.merge(event.Message.Usage); err != nil {
		return err
	}
	if err := s.merge(event.Usage); err != nil {
		return err
	}
	s.output = s.output || given(event.Usage)
	s.sawShown(&event.Delta)
	s.ended = s.ended || event.Type == "message_stop" || given(event.Delta.Stop)
	return nil
}

// geminiEvent: every chunk may have the counts so far.
func (s *Stream) geminiEvent(data []byte) error {
	var event struct {
		Usage      json.RawMessage `json:"usageMetadata"`
		Candidates []struct {
			Content struct {
				Parts []struct {
					Text json.RawMessage `json:"text"`
					Call json.RawMessage `json:"functionCall"`
				} `json:"parts"`
			} `json:"content"`
			Finish json.RawMessage `json:"finishReason"`
		} `json:"candidates"`
	}
	if err := decode(data, &event); err != nil {
		return err
	}
	if err := s.merge(event.Usage); err != nil {
		return err
	}
	for i := range event.Candidates {
		for j := range event.Candidates[i].Content.Parts {
			part := &event.Candidates[i].Content.Parts[j]
			s.saw(part.Text)
			s.saw(part.Call)
		}
		s.ended = s.ended || given(event.Candidates[i].Finish)
	}
	return nil
}

// bedrockEvent: the usage comes after the end, with the tier and the latency.
func (s *Stream) bedrockEvent(data []byte, inner bool) error {
	var event struct {
		Delta  shown           `json:"delta"`
		Stop   json.RawMessage `json:"stopReason"`
		Usage  json.RawMessage `json:"usage"`
		Tier   json.RawMessage `json:"serviceTier"`
		Config json.RawMessage `json:"performanceConfig"`

		BlockDelta  json.RawMessage `json:"contentBlockDelta"`
		MessageStop json.RawMessage `json:"messageStop"`
		Metadata    json.RawMessage `json:"metadata"`
	}
	if err := decode(data, &event); err != nil {
		return err
	}
	for _, payload := range [...]json.RawMessage{event.BlockDelta, event.MessageStop, event.Metadata} {
		if given(payload) && !inner {
			return s.bedrockEvent(payload, true)
		}
	}
	if err := s.replace(event.Usage); err != nil {
		return err
	}
	s.served(event.Tier)
	if given(event.Config) && len(event.Config) <= MaxUsageBytes {
		s.config = append(s.config[:0], event.Config...)
	}
	s.sawShown(&event.Delta)
	s.ended = s.ended || given(event.Stop) || given(event.Usage)
	return nil
}

// replace keeps a usage object in the place of the one before.
func (s *Stream) replace(usage json.RawMessage) error {
	if !given(usage) {
		return nil
	}
	if len(usage) > MaxUsageBytes {
		return invalid(eventField+".usage", "is over %d bytes", MaxUsageBytes)
	}
	s.last = append(s.last[:0], usage...)
	return nil
}

// merge adds a usage object to those before: a count that it names stands, one
// that it does not name stays.
func (s *Stream) merge(usage json.RawMessage) error {
	if !given(usage) {
		return nil
	}
	if len(usage) > MaxUsageBytes {
		return invalid(eventField+".usage", "is over %d bytes", MaxUsageBytes)
	}
	object, err := ParseJSON(eventField+".usage", usage)
	if err != nil {
		return err
	}
	if s.merged == nil {
		s.merged = make(map[string]any, len(object))
	}
	maps.DeleteFunc(object, func(_ string, value any) bool { return value == nil })
	if len(s.merged)+len(object) > maxUsageFields {
		return invalid(eventField+".usage", "has more than %d fields in all", maxUsageFields)
	}
	maps.Copy(s.merged, object)
	return nil
}

// maxUsageFields bounds the fields of the usage objects of one stream.
const maxUsageFields = 1000

// served keeps the tier that was named last.
func (s *Stream) served(tiers ...json.RawMessage) {
	for _, tier := range tiers {
		if given(tier) && len(tier) <= MaxUsageBytes {
			s.tier = append(s.tier[:0], tier...)
		}
	}
}

// saw adds a piece of the answer: a string, or anything else by its JSON.
func (s *Stream) saw(value json.RawMessage) {
	if !given(value) {
		return
	}
	switch {
	case value[0] != '"':
		s.text = append(s.text, value...)
	case bytes.IndexByte(value, '\\') < 0:
		s.text = append(s.text, value[1:len(value)-1]...)
	default:
		var text string
		if json.Unmarshal(value, &text) == nil { // it was decoded before
			s.text = append(s.text, text...)
		}
	}
	if len(s.text) > maxSeenText {
		s.counted = s.counted.plus(s.count())
		s.text = s.text[:0]
	}
}

// count counts the text that is kept, as input is counted.
func (s *Stream) count() Figures {
	if len(s.text) == 0 {
		return Figures{}
	}
	text := string(s.text)
	if s.model.Encoding != "" {
		if n, err := Count(s.model.Encoding, text); err == nil {
			return exactly(n)
		}
	}
	rule := s.model.Rule
	if rule.Family == "" {
		rule = family.Of(s.model.ID)
	}
	figures, err := Bounds(text, rule)
	if err != nil {
		return Figures{}
	}
	return figures[0]
}

// Streamed says what was seen so far. It fails with a [CallError] when the
// usage object that stands is not one of the provider's.
func (s *Stream) Streamed() (Streamed, error) {
	out := Streamed{Ended: s.ended}
	usage := s.merged
	if s.last != nil {
		var err error
		if usage, err = ParseJSON(usageField, s.last); err != nil {
			return Streamed{}, err
		}
	}
	u := usageReader{}
	for key, value := range map[string][]byte{"service_tier": s.tier, "performanceConfig": s.config} {
		var name any
		if value != nil && json.Unmarshal(value, &name) == nil {
			u.served(map[string]any{key: name})
		}
	}
	if usage != nil {
		u.normalize(s.format, usage)
		if err := u.finish(s.format); err != nil {
			return Streamed{}, err
		}
		out.ToldInput = names(usage, "prompt_tokens", "input_tokens", "promptTokenCount", "inputTokens")
		out.ToldOutput = names(usage, "completion_tokens", "output_tokens", "candidatesTokenCount", "thoughtsTokenCount", "outputTokens")
		if s.format == formatAnthropic { // message_start has only a first figure
			out.ToldOutput = out.ToldOutput && s.output
		}
	}
	out.Use = u.use
	if out.Ended && out.ToldOutput {
		return out, nil
	}
	out.Seen = s.counted.plus(s.count())
	told, err := out.Use.Tokens.TotalOutput()
	if err != nil {
		return Streamed{}, err
	}
	if more := out.Seen.Expected - told; more > 0 {
		out.Use.Tokens.Output = min(out.Use.Tokens.Output+more, quota.Tokens(quota.MaxAmount))
	}
	return out, nil
}

// names says whether an object has any of the keys with a value.
func names(object map[string]any, keys ...string) bool {
	value, _ := either(object, keys...)
	return value != nil
}
