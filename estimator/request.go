package estimator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"strings"

	"github.com/budgetd/budgetd/estimator/answer"
)

// layoutOf is the layout of a provider's request bodies and usage objects.
func layoutOf(provider string) (answer.Layout, error) {
	layout, ok := answer.LayoutOf(provider)
	if !ok {
		return "", invalid("provider", "%.64q has no known request and usage layout; use openai (for all that serve it), anthropic, gemini or bedrock", provider)
	}
	return layout, nil
}

// requestLayout is layoutOf for the body of a call whose model has a price. A name
// that neither the table of layouts nor the built-in catalogue has is then no
// misspelt one: it is the operator's own, as of a vLLM server, with a price in the
// policy or a prices file, and such servers take OpenAI's bodies.
func requestLayout(provider string) (answer.Layout, error) {
	layout, err := layoutOf(provider)
	if err == nil {
		return layout, nil
	}
	if builtIn, e := EmbeddedCatalogue(); e != nil || builtIn.byName[strings.ToLower(provider)] != nil {
		return "", err
	}
	return answer.OpenAI, nil
}

// outputField is where a call bounds its output, as its provider names it in
// bodies of this kind.
func outputField(call Call, model Model) string {
	if call.ProviderRequest == nil {
		return "max_output_tokens"
	}
	layout, err := requestLayout(cmp.Or(call.Provider, model.Provider))
	switch {
	case err != nil:
		return "max_output_tokens"
	case layout == answer.Anthropic:
		return "max_tokens"
	case layout == answer.Gemini:
		return "generationConfig.maxOutputTokens"
	case layout == answer.Bedrock:
		return "inferenceConfig.maxTokens"
	case call.ProviderRequest["messages"] != nil:
		return "max_completion_tokens"
	case call.ProviderRequest["input"] != nil || call.ProviderRequest["instructions"] != nil:
		return "max_output_tokens" // a response
	}
	return "max_tokens" // a completion
}

// MaxRequestBytes bounds the raw JSON that ParseJSON reads: 64 MiB, above the
// largest body that a provider takes.
const MaxRequestBytes = 64 << 20

// ParseJSON reads one JSON object, such as a provider request or a usage
// object, keeping numbers exact. It fails with a [CallError] that names the
// field and the position at fault.
func ParseJSON(field string, data []byte) (map[string]any, error) {
	if len(data) > MaxRequestBytes {
		return nil, invalid(field, "is over %d bytes", MaxRequestBytes)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return nil, invalid(field, "must be one JSON object (bad at byte %d)", decoder.InputOffset())
	}
	if object == nil {
		return nil, invalid(field, "must be one JSON object, not null")
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, invalid(field, "must be one JSON object and nothing after it (byte %d)", decoder.InputOffset())
	}
	return object, nil
}

const requestField = "provider_request"

// read fills the tally from a provider's request body.
func (t *tally) read(f answer.Layout, body map[string]any, mode Mode) error {
	switch f {
	case answer.Anthropic:
		return t.readAnthropic(body)
	case answer.Gemini:
		return t.readGemini(body)
	case answer.Bedrock:
		return t.readBedrock(body)
	default:
		return t.readOpenAI(body, mode)
	}
}

// asks notes what a body asks for that decides prices: the tier, the speed, and
// answers other than text.
func (t *tally) asks(body map[string]any) {
	u := usageReader{}
	u.served(body)
	t.speed = u.use.Speed
	if u.use.Tier != "standard_only" { // Anthropic's name of the usual one
		t.tier = u.use.Tier
	}
	config, _ := body["generationConfig"].(map[string]any)
	if config == nil {
		config, _ = body["generation_config"].(map[string]any)
	}
	for _, value := range []any{body["modalities"], config["responseModalities"], config["response_modalities"]} {
		list, _ := value.([]any)
		for _, item := range list {
			name, _ := item.(string)
			t.makesAudio = t.makesAudio || strings.EqualFold(name, "audio")
			t.makesImages = t.makesImages || strings.EqualFold(name, "image")
		}
	}
}

// rest counts every field that is neither read elsewhere nor known to carry no
// input by its JSON text: a field that a provider adds later is never free.
func (t *tally) rest(body map[string]any, known map[string]bool) error {
	unknown := map[string]any{}
	for key, value := range body {
		if !known[key] {
			unknown[key] = value
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return t.json(requestField, unknown)
}

// set makes the known-field sets from space separated names.
func set(names string) map[string]bool {
	out := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		out[name] = true
	}
	return out
}
