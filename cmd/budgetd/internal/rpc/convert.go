package rpc

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/budgetd/budgetd/estimator"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Bounds of a model call that the estimator leaves to us.
const (
	maxMessages      = 10_000
	maxRoleBytes     = 64
	maxNameBytes     = 128
	maxProviderBytes = 64
)

func amountsIn(amounts map[string]int64) quota.Amounts {
	if amounts == nil {
		return nil
	}
	in := make(quota.Amounts, len(amounts))
	for meter, amount := range amounts {
		in[quota.Meter(meter)] = quota.Amount(amount)
	}
	return in
}

func amountsOut(amounts quota.Amounts) map[string]int64 {
	if len(amounts) == 0 {
		return nil
	}
	out := make(map[string]int64, len(amounts))
	for meter, amount := range amounts {
		out[string(meter)] = int64(amount)
	}
	return out
}

func leaseIn(lease *durationpb.Duration) (*time.Duration, error) {
	return durationIn("lease", lease, "1 ms to 24 h")
}

func waitIn(wait *durationpb.Duration) (*time.Duration, error) {
	return durationIn("maxWait", wait, "0 to 1 h")
}

// durationIn returns nil for a field that is absent.
func durationIn(field string, stated *durationpb.Duration, bound string) (*time.Duration, error) {
	if stated == nil {
		return nil, nil
	}
	if err := stated.CheckValid(); err != nil {
		return nil, invalid(&budgetv1.InvalidField{Field: field, Problem: "is not a time: seconds and nanoseconds are out of range or differ in sign", Bound: bound})
	}
	d := stated.AsDuration()
	return &d, nil
}

func keyIn(key string) error {
	for i := range len(key) {
		if key[i] < 0x20 || key[i] > 0x7e {
			return invalid(&budgetv1.InvalidField{Field: "idempotencyKey", Problem: fmt.Sprintf("has a byte at %d that is not printable ASCII", i), Bound: "1 to 256 bytes of printable ASCII; hash or hex-encode other keys"})
		}
	}
	return nil
}

// callIn turns a model call into the estimator's words.
func callIn(call *budgetv1.LlmCall) (estimator.Call, error) {
	fault := func(field, problem, bound string) (estimator.Call, error) {
		return estimator.Call{}, invalid(&budgetv1.InvalidField{Field: field, Problem: problem, Bound: bound})
	}
	in := estimator.Call{
		Provider:        call.GetProvider(),
		Model:           call.GetModel(),
		Prompt:          call.GetPrompt(),
		InputTokens:     tokensIn(call.InputTokens),
		MaxOutputTokens: tokensIn(call.MaxOutputTokens),
		N:               int(call.GetN()),
	}
	ways := 0
	for _, stated := range []bool{call.Prompt != nil, len(call.Messages) > 0, call.ProviderRequest != nil} {
		if stated {
			ways++
		}
	}
	switch {
	case ways > 1, ways == 1 && call.InputTokens != nil && call.ProviderRequest == nil:
		return fault("llm", "states the input in more than one way", "one of prompt, messages, providerRequest and inputTokens; inputTokens may accompany a providerRequest")
	case ways == 0 && call.InputTokens == nil:
		return fault("llm", "does not state the input", "one of prompt, messages, providerRequest and inputTokens")
	case len(call.Provider) > maxProviderBytes:
		return fault("llm.provider", fmt.Sprintf("has %d bytes", len(call.Provider)), fmt.Sprintf("at most %d bytes", maxProviderBytes))
	case call.ProviderRequest != nil && call.Provider == "":
		return fault("llm.provider", "is missing beside providerRequest", `whose request it is: "openai", "anthropic", "gemini" or "bedrock"`)
	case call.N != nil && (call.GetN() < 1 || call.GetN() > estimator.MaxChoices):
		return fault("llm.n", fmt.Sprintf("%d is out of bounds", call.GetN()), fmt.Sprintf("1 to %d", estimator.MaxChoices))
	case len(call.Messages) > maxMessages:
		return fault("llm.messages", fmt.Sprintf("has %d messages", len(call.Messages)), fmt.Sprintf("at most %d", maxMessages))
	}
	if call.ProviderRequest != nil {
		in.ProviderRequest = call.ProviderRequest.AsMap()
	}
	if call.Prompt != nil && call.GetPrompt() == "" {
		// To the estimator an empty prompt is none: one message without text.
		in.Messages = []estimator.Message{{Role: "user"}}
	}
	for i, message := range call.Messages {
		switch {
		case message.GetRole() == "" || len(message.GetRole()) > maxRoleBytes:
			return fault(fmt.Sprintf("llm.messages[%d].role", i), fmt.Sprintf("has %d bytes", len(message.GetRole())), fmt.Sprintf(`1 to %d bytes, such as "user"`, maxRoleBytes))
		case len(message.GetName()) > maxNameBytes:
			return fault(fmt.Sprintf("llm.messages[%d].name", i), fmt.Sprintf("has %d bytes", len(message.GetName())), fmt.Sprintf("at most %d bytes", maxNameBytes))
		}
		in.Messages = append(in.Messages, estimator.Message{Role: message.GetRole(), Name: message.GetName(), Content: message.GetContent()})
	}
	return in, nil
}

func tokensIn(tokens *int64) *quota.Tokens {
	if tokens == nil {
		return nil
	}
	in := quota.Tokens(*tokens)
	return &in
}

// useIn is nil when nothing is stated. Without tokens or units there is nothing
// that was served.
func useIn(at string, classes *budgetv1.TokenClasses, units *budgetv1.BilledUnits, served *budgetv1.ServedAs) (*estimator.Use, error) {
	if classes == nil && units == nil {
		if served != nil {
			return nil, invalid(&budgetv1.InvalidField{Field: at + ".served", Problem: "stands without tokens and units", Bound: "beside one of them"})
		}
		return nil, nil
	}
	return &estimator.Use{
		Tokens: estimator.TokenClasses{
			Input:          quota.Tokens(classes.GetInput()),
			InputAudio:     quota.Tokens(classes.GetInputAudio()),
			InputImage:     quota.Tokens(classes.GetInputImage()),
			InputVideo:     quota.Tokens(classes.GetInputVideo()),
			CacheRead:      quota.Tokens(classes.GetCacheRead()),
			CacheReadAudio: quota.Tokens(classes.GetCacheReadAudio()),
			CacheReadImage: quota.Tokens(classes.GetCacheReadImage()),
			CacheWrite:     quota.Tokens(classes.GetCacheWrite()),
			CacheWrite1h:   quota.Tokens(classes.GetCacheWriteHour()),
			Output:         quota.Tokens(classes.GetOutput()),
			OutputAudio:    quota.Tokens(classes.GetOutputAudio()),
			OutputImage:    quota.Tokens(classes.GetOutputImage()),
			OutputVideo:    quota.Tokens(classes.GetOutputVideo()),
			Reasoning:      quota.Tokens(classes.GetReasoning()),
		},
		Units: estimator.Units{
			Images:   estimator.Quantity(units.GetImages()),
			Seconds:  estimator.Milliseconds(units.GetMilliseconds()),
			Pages:    estimator.Quantity(units.GetPages()),
			Searches: estimator.Quantity(units.GetSearches()),
			Requests: estimator.Quantity(units.GetRequests()),
		},
		Tier:  served.GetTier(),
		Speed: served.GetSpeed(),
	}, nil
}

// usageObjectIn checks that a provider's usage object and the provider come
// together.
func usageObjectIn(at, provider string, usage *structpb.Struct) (map[string]any, error) {
	switch {
	case len(provider) > maxProviderBytes:
		return nil, invalid(&budgetv1.InvalidField{Field: at + ".provider", Problem: fmt.Sprintf("has %d bytes", len(provider)), Bound: fmt.Sprintf("at most %d bytes", maxProviderBytes)})
	case usage == nil:
		return nil, nil
	case provider == "":
		return nil, invalid(&budgetv1.InvalidField{Field: at + ".provider", Problem: "is missing beside providerUsage", Bound: `whose usage object it is: "openai", "anthropic", "gemini" or "bedrock"`})
	}
	return usage.AsMap(), nil
}

func timeOut(at time.Time) *timestamppb.Timestamp {
	if at.IsZero() {
		return nil
	}
	return timestamppb.New(at)
}

func holdsOut(holds []reservation.HeldLimit) []*budgetv1.Hold {
	out := make([]*budgetv1.Hold, 0, len(holds))
	for _, hold := range holds {
		o := &budgetv1.Hold{
			Limit:  hold.Limit,
			Pool:   hold.Pool,
			Scope:  hold.Scope,
			Meter:  string(hold.Meter),
			Amount: int64(hold.Amount),
			Shadow: hold.Shadow,
		}
		if hold.LevelKnown {
			remaining := int64(hold.Level.Remaining)
			o.Remaining, o.ResetsAt = &remaining, timeOut(hold.Level.ResetsAt)
		}
		out = append(out, o)
	}
	return out
}

func stateOut(state reservation.State, late, released bool) budgetv1.ReservationState {
	switch {
	case state == reservation.StateHeld:
		return budgetv1.ReservationState_RESERVATION_STATE_HELD
	case state == reservation.StateExpired:
		return budgetv1.ReservationState_RESERVATION_STATE_EXPIRED
	case state == reservation.StateSettled && late:
		return budgetv1.ReservationState_RESERVATION_STATE_SETTLED_LATE
	case state == reservation.StateSettled && released:
		return budgetv1.ReservationState_RESERVATION_STATE_RELEASED
	case state == reservation.StateSettled:
		return budgetv1.ReservationState_RESERVATION_STATE_SETTLED
	}
	return budgetv1.ReservationState_RESERVATION_STATE_UNSPECIFIED
}

func estimateOut(e *estimator.Estimate) *budgetv1.CallEstimate {
	if e == nil {
		return nil
	}
	out := &budgetv1.CallEstimate{
		InputTokens:     int64(e.Input.Ceiling),
		MaxOutputTokens: int64(e.Output.Ceiling),
		CostNanoUsd:     int64(e.Cost),
		Bound:           budgetv1.EstimateBound_ESTIMATE_BOUND_CEILING,
		PriceVersion:    e.PriceVersion,
		Encoding:        string(e.Encoding),
		Provider:        e.Provider,
		Input:           figuresOut(e.Input),
		Output:          figuresOut(e.Output),
		Parts:           make([]*budgetv1.EstimatePart, len(e.Parts)),
	}
	for i, part := range e.Parts {
		out.Parts[i] = &budgetv1.EstimatePart{Kind: string(part.Kind), Count: part.Count, Tokens: figuresOut(part.Tokens), Method: part.Method}
	}
	for _, line := range e.Lines {
		out.Lines = append(out.Lines, &budgetv1.EstimateLine{Class: line.Class, Tokens: int64(line.Tokens), NanoUsdPerMillion: int64(line.Price)})
	}
	if e.Price.Provider != "" { // else the ceiling for unknown models
		out.CatalogueModel = e.Model
	}
	switch method, _, _ := strings.Cut(e.Method, "/"); method {
	case "caller":
		out.Method = budgetv1.EstimateMethod_ESTIMATE_METHOD_STATED
	case "tiktoken":
		out.Method = budgetv1.EstimateMethod_ESTIMATE_METHOD_TOKENIZER
	case "rule":
		out.Method = budgetv1.EstimateMethod_ESTIMATE_METHOD_RULE
	}
	if e.Exact {
		out.Bound = budgetv1.EstimateBound_ESTIMATE_BOUND_EXACT
	}
	return out
}

func figuresOut(f estimator.Figures) *budgetv1.TokenFigures {
	return &budgetv1.TokenFigures{Floor: int64(f.Floor), Expected: int64(f.Expected), Ceiling: int64(f.Ceiling)}
}
