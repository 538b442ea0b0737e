package answer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// Bounds of a stream.
const (
	// MaxEventBytes bounds one event: pictures come as base64 in one.
	MaxEventBytes = 16 << 20
	// MaxUsageBytes bounds the usage object of an event.
	MaxUsageBytes = 64 << 10
	// MaxTextBytes bounds the text that is kept for [Answer.Text]. No model writes
	// as much in one answer; what is beyond is not counted.
	MaxTextBytes = 1 << 20
	// maxUsageFields bounds the fields of the usage objects of one stream.
	maxUsageFields = 1000
)

// Stream follows the events of one streamed answer, and says what they used. It
// keeps the last usage object and at most [MaxTextBytes] of text, whatever the
// length of the answer. It is for one goroutine.
type Stream struct {
	layout Layout

	last   []byte         // the last usage object of a layout whose last one stands whole
	merged map[string]any // the usage objects of a layout that adds to them event by event
	tier   []byte         // JSON of the service tier as it was last named
	config []byte         // JSON of Bedrock's performanceConfig
	output bool           // an object told the output
	ended  bool
	failed bool   // the provider told an error
	text   []byte // of the answer
}

// NewStream follows an answer of a layout.
func NewStream(layout Layout) *Stream { return &Stream{layout: layout} }

// Answer is what an answer said, plain or streamed.
type Answer struct {
	// Usage is the provider's usage object in its own words, as the only member of
	// an object, named as the layout names it, beside the service tier where the
	// answer named one. nil: the provider told nothing.
	Usage map[string]any

	// Text is the text that was seen of an answer that was cut before the provider
	// told its output, or after it last did: the answer, its tool calls and its
	// reasoning as far as they were shown, at most [MaxTextBytes]. Empty where the
	// provider told all.
	Text string

	Ended      bool // a terminal event was seen; false: the stream was cut, or goes on
	ToldInput  bool // the provider told the input
	ToldOutput bool // the provider told the output, at least that up to some event

	// Refused says that the provider told an error, and neither a usage nor anything
	// that a model made.
	Refused bool
}

// Event takes the next event: the data of a server-sent event, or the payload
// of a message of a Bedrock stream, bare or in an object that names its kind.
// The data is not kept. It fails for what is no JSON object of the layout, and for
// what is over its bound; the stream then is as it was, and can go on. Errors have
// nothing of the data in them.
func (s *Stream) Event(data []byte) error {
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0: // a comment that keeps the connection open
		return nil
	case string(data) == "[DONE]":
		s.ended = true
		return nil
	case len(data) > MaxEventBytes:
		return fmt.Errorf("event is over %d bytes", MaxEventBytes)
	}
	if !s.failed && bytes.Contains(data, []byte(`"error"`)) {
		var event failure
		s.failed = json.Unmarshal(data, &event) == nil && event.told()
	}
	switch s.layout {
	case Anthropic:
		return s.anthropicEvent(data)
	case Gemini:
		return s.geminiEvent(data)
	case Bedrock:
		return s.bedrockEvent(data, false)
	default:
		return s.openAIEvent(data)
	}
}

// Fail notes an error of the provider that is told beside the data, as by the
// headers of a message of a Bedrock stream.
func (s *Stream) Fail() { s.failed = true }

var errEvent = errors.New("event is not a JSON object of this provider's stream")

// decode reads an event. Fields that hosts fill with other types than their
// makers are read as raw JSON.
func decode(data []byte, event any) error {
	if err := json.Unmarshal(data, event); err != nil {
		return errEvent
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
		return fmt.Errorf("usage of an event is over %d bytes", MaxUsageBytes)
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
		return fmt.Errorf("usage of an event is over %d bytes", MaxUsageBytes)
	}
	object, err := readObject(usage)
	if err != nil {
		return err
	}
	if s.merged == nil {
		s.merged = make(map[string]any, len(object))
	}
	maps.DeleteFunc(object, func(_ string, value any) bool { return value == nil })
	if len(s.merged)+len(object) > maxUsageFields {
		return fmt.Errorf("usage of a stream has more than %d fields", maxUsageFields)
	}
	maps.Copy(s.merged, object)
	return nil
}

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
	if !given(value) || len(s.text) >= MaxTextBytes {
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
	s.text = s.text[:min(len(s.text), MaxTextBytes)]
}

// Answer says what was seen so far.
func (s *Stream) Answer() (Answer, error) {
	usage := s.merged
	if s.last != nil {
		var err error
		if usage, err = readObject(s.last); err != nil {
			return Answer{}, err
		}
	}
	out := answerOf(s.layout, maps.Clone(usage), s.tier, s.config)
	out.Ended = s.ended
	if s.layout == Anthropic { // message_start has only a first figure
		out.ToldOutput = out.ToldOutput && s.output
	}
	if !out.Ended || !out.ToldOutput {
		out.Text = string(bytes.ToValidUTF8(s.text, nil)) // the last character may be cut
	}
	out.Refused = s.failed && out.Usage == nil && len(s.text) == 0
	return out, nil
}
