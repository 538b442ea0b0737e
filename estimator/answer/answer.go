package answer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxBodyBytes bounds the body of a plain answer: 64 MiB.
const MaxBodyBytes = 64 << 20

var errUsage = errors.New("usage is not one JSON object")

// failure is where the providers tell an error, in an answer or an event of its own.
type failure struct {
	Type  json.RawMessage `json:"type"`   // Anthropic: "error"
	Error json.RawMessage `json:"error"`  // all but Bedrock
	AWS   json.RawMessage `json:"__type"` // Bedrock: the name of the exception
}

// told says whether an error is told. Some hosts have an empty one in every answer.
func (f *failure) told() bool {
	switch string(f.Error) {
	case `""`, `{}`, `false`, `[]`:
		return false
	}
	return given(f.Error) || given(f.AWS) || string(f.Type) == `"error"`
}

// shows is where the providers put what a model made.
type shows struct {
	Choices    json.RawMessage `json:"choices"`
	Output     json.RawMessage `json:"output"`
	Content    json.RawMessage `json:"content"`
	Candidates json.RawMessage `json:"candidates"`
	Data       json.RawMessage `json:"data"`
}

// anything says whether there is something.
func (s *shows) anything() bool {
	for _, made := range [...]json.RawMessage{s.Choices, s.Output, s.Content, s.Candidates, s.Data} {
		if given(made) && string(made) != "[]" && string(made) != "{}" {
			return true
		}
	}
	return false
}

// Whole reads a plain answer. An answer without a usage object, such as an error,
// has told nothing, which is no error. It fails for a body that is no JSON object,
// or over [MaxBodyBytes]; errors have nothing of the body in them.
func Whole(layout Layout, body []byte) (Answer, error) {
	if len(body) > MaxBodyBytes {
		return Answer{}, fmt.Errorf("answer is over %d bytes", MaxBodyBytes)
	}
	var whole struct {
		Usage         json.RawMessage `json:"usage"`
		UsageMetadata json.RawMessage `json:"usageMetadata"`
		Tier          json.RawMessage `json:"service_tier"`
		BedrockTier   json.RawMessage `json:"serviceTier"`
		Config        json.RawMessage `json:"performanceConfig"`
		failure
		shows
	}
	if err := json.Unmarshal(body, &whole); err != nil {
		return Answer{}, errors.New("answer is not a JSON object")
	}
	usage, tier := whole.Usage, whole.Tier
	if layout == Gemini {
		usage = whole.UsageMetadata
	}
	if layout == Bedrock {
		tier = whole.BedrockTier
	}
	if !given(usage) {
		return Answer{Ended: true, Refused: whole.told() && !whole.anything()}, nil
	}
	if len(usage) > MaxUsageBytes {
		return Answer{}, fmt.Errorf("usage is over %d bytes", MaxUsageBytes)
	}
	object, err := readObject(usage)
	if err != nil {
		return Answer{}, err
	}
	out := answerOf(layout, object, tier, whole.Config)
	out.Ended = true
	return out, nil
}

// answerOf puts a usage object and how the call was served in the place where the
// layout has them.
func answerOf(layout Layout, usage map[string]any, tier, config []byte) Answer {
	var out Answer
	if usage == nil {
		return out
	}
	out.ToldInput = names(usage, "prompt_tokens", "input_tokens", "promptTokenCount", "inputTokens")
	out.ToldOutput = names(usage, "completion_tokens", "output_tokens", "candidatesTokenCount", "thoughtsTokenCount", "outputTokens")
	key, tierKey := "usage", "service_tier"
	switch layout {
	case Gemini:
		key = "usageMetadata"
	case Bedrock:
		tierKey = "serviceTier"
	}
	out.Usage = map[string]any{key: usage}
	for key, value := range map[string][]byte{tierKey: tier, "performanceConfig": config} {
		if !given(value) || len(value) > MaxUsageBytes {
			continue
		}
		var name any
		if json.Unmarshal(value, &name) == nil {
			out.Usage[key] = name
		}
	}
	return out
}

// names says whether an object has any of the keys with a value.
func names(object map[string]any, keys ...string) bool {
	for _, key := range keys {
		if object[key] != nil {
			return true
		}
	}
	return false
}

// readObject reads one JSON object, keeping numbers exact.
func readObject(data []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil || object == nil {
		return nil, errUsage
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errUsage
	}
	return object, nil
}
