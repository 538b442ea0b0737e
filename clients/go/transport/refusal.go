package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/internal/pause"
	"github.com/budgetd/budgetd/estimator/answer"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// Fault is why a call was not sent on. It becomes an answer in the error shape of
// a provider, so that SDKs raise their usual errors and retry by their usual rules.
type Fault struct {
	Kind    FaultKind
	Message string
	Meter   string // of the limit that refused; may be empty

	// RetryAfter is how long to wait, for FaultRateLimited and FaultUnavailable.
	// It is rounded up to seconds, at least one, where a header has those only.
	RetryAfter time.Duration

	// Header is added to the answer.
	Header http.Header
}

// FaultKind is the kind of a [Fault].
type FaultKind int

// The kinds of faults.
const (
	FaultRateLimited     FaultKind = iota // wait and try again
	FaultQuotaSpent                       // waiting does not help
	FaultInvalid                          // the request can't be budgeted as it is
	FaultTooLarge                         // the body is over the bound
	FaultDenied                           // the credential may not do this
	FaultUnauthorized                     // the credential is none
	FaultUnavailable                      // the broker does not answer; try again
	FaultNotFound                         // there is nothing at this path
	FaultUpstream                         // the provider could not be reached; try again
	FaultUpstreamTimeout                  // the provider did not answer in time; try again
	FaultRequestTimeout                   // the request did not arrive in time; try again
	FaultUpstreamKey                      // the provider refused a key that is not the caller's
	numberOfFaults
)

// shape is how the providers name one kind of fault.
type shape struct {
	status                     int
	openAIType, openAICode     string
	anthropic, gemini, bedrock string
	bedrockStatus              int // 0: status
	retried                    bool
}

// shapes are by the providers' own error references:
// https://platform.openai.com/docs/guides/error-codes,
// https://docs.anthropic.com/en/api/errors,
// https://cloud.google.com/apis/design/errors (google.rpc.Code),
// https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html.
var shapes = [numberOfFaults]shape{
	FaultRateLimited:     {http.StatusTooManyRequests, "requests", "rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED", "ThrottlingException", 0, true},
	FaultQuotaSpent:      {http.StatusTooManyRequests, "insufficient_quota", "insufficient_quota", "rate_limit_error", "RESOURCE_EXHAUSTED", "ServiceQuotaExceededException", http.StatusBadRequest, false},
	FaultInvalid:         {http.StatusBadRequest, "invalid_request_error", "", "invalid_request_error", "INVALID_ARGUMENT", "ValidationException", 0, false},
	FaultTooLarge:        {http.StatusRequestEntityTooLarge, "invalid_request_error", "", "request_too_large", "INVALID_ARGUMENT", "ValidationException", 0, false},
	FaultDenied:          {http.StatusForbidden, "invalid_request_error", "budget_denied", "permission_error", "PERMISSION_DENIED", "AccessDeniedException", 0, false},
	FaultUnauthorized:    {http.StatusUnauthorized, "invalid_request_error", "invalid_api_key", "authentication_error", "UNAUTHENTICATED", "UnrecognizedClientException", http.StatusForbidden, false},
	FaultUnavailable:     {http.StatusServiceUnavailable, "server_error", "budget_unavailable", "api_error", "UNAVAILABLE", "ServiceUnavailableException", 0, true},
	FaultNotFound:        {http.StatusNotFound, "invalid_request_error", "", "not_found_error", "NOT_FOUND", "ResourceNotFoundException", 0, false},
	FaultUpstream:        {http.StatusBadGateway, "server_error", "", "api_error", "UNAVAILABLE", "ServiceUnavailableException", 0, true},
	FaultUpstreamTimeout: {http.StatusGatewayTimeout, "server_error", "", "api_error", "DEADLINE_EXCEEDED", "ModelTimeoutException", 0, true},
	FaultRequestTimeout:  {http.StatusRequestTimeout, "invalid_request_error", "request_timeout", "timeout_error", "DEADLINE_EXCEEDED", "ServiceUnavailableException", http.StatusServiceUnavailable, true},
	FaultUpstreamKey:     {http.StatusBadGateway, "server_error", "provider_key_refused", "api_error", "INTERNAL", "InternalServerException", http.StatusInternalServerError, false},
}

// Answer is the fault as an answer to a request, in the shape of a layout.
func (f *Fault) Answer(request *http.Request, layout answer.Layout) *http.Response {
	s := shapes[f.Kind]
	header := f.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Should-Retry", strconv.FormatBool(s.retried))
	if s.retried && f.RetryAfter > 0 {
		header.Set("Retry-After", strconv.FormatInt(pause.Seconds(f.RetryAfter), 10))
		header.Set("Retry-After-Ms", strconv.FormatInt(max(f.RetryAfter.Milliseconds(), 1), 10))
	}
	status := s.status
	var body map[string]any
	switch layout {
	case answer.Anthropic:
		body = map[string]any{"type": "error", "error": map[string]any{"type": s.anthropic, "message": f.Message}}
	case answer.Gemini:
		inner := map[string]any{"code": status, "message": f.Message, "status": s.gemini}
		if s.retried && f.RetryAfter > 0 {
			inner["details"] = []any{map[string]any{
				"@type":      "type.googleapis.com/google.rpc.RetryInfo",
				"retryDelay": fmt.Sprintf("%ds", pause.Seconds(f.RetryAfter)),
			}}
		}
		body = map[string]any{"error": inner}
	case answer.Bedrock:
		if s.bedrockStatus != 0 {
			status = s.bedrockStatus
		}
		header.Set("X-Amzn-ErrorType", s.bedrock)
		body = map[string]any{"message": f.Message}
	default:
		kind, code := s.openAIType, any(s.openAICode)
		if s.openAICode == "" {
			code = nil
		}
		if f.Kind == FaultRateLimited && (f.Meter == "tokens" || f.Meter == "input_tokens" || f.Meter == "output_tokens") {
			kind = "tokens"
		}
		body = map[string]any{"error": map[string]any{"message": f.Message, "type": kind, "param": nil, "code": code}}
	}
	text, err := json.Marshal(body)
	if err != nil {
		text = []byte("{}") // strings and numbers always marshal
	}
	header.Set("Content-Length", strconv.Itoa(len(text)))
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, ContentLength: int64(len(text)), Body: io.NopCloser(bytes.NewReader(text)),
		Request: request,
	}
}

// noBroker is told when no broker answered. The reason has its address, which the
// end of the call may not know.
const noBroker = "budget: no broker answers; try again"

// faultOf is the fault that an error of the broker comes to.
func faultOf(err error) *Fault {
	var refused *budget.RefusedError
	if errors.As(err, &refused) {
		return refusalFault(refused)
	}
	var early *budget.NotStartedError
	if errors.As(err, &early) { // its start comes after its deadline
		return &Fault{
			Kind: FaultRateLimited, RetryAfter: max(early.In, time.Second), Header: http.Header{"X-Budget-Reason": {"rate_limited"}},
			Message: fmt.Sprintf("budget: the call may start in %v, after its own deadline", early.In.Round(time.Second)),
		}
	}
	var rpc *connect.Error
	if !errors.As(err, &rpc) {
		return &Fault{Kind: FaultUnavailable, Message: noBroker}
	}
	kind := FaultUnavailable
	switch rpc.Code() {
	case connect.CodeInvalidArgument, connect.CodeAlreadyExists, connect.CodeFailedPrecondition, connect.CodeOutOfRange:
		kind = FaultInvalid
	case connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeNotFound:
		kind = FaultDenied
	}
	header := http.Header{}
	header.Set("X-Budget-Error", rpc.Code().String())
	message := "budget: " + rpc.Message()
	if kind == FaultUnavailable && !connect.IsWireError(err) {
		message = noBroker
	}
	return &Fault{Kind: kind, Message: message, Header: header}
}

// refusalFault is a limit's refusal.
func refusalFault(refused *budget.RefusedError) *Fault {
	r := refused.Refusal
	f := &Fault{Kind: FaultQuotaSpent, Message: refusalMessage(refused), Meter: r.Meter, Header: http.Header{}}
	if refused.Retryable() {
		f.Kind, f.RetryAfter = FaultRateLimited, max(refused.RetryAfter, time.Second)
	}
	for name, value := range map[string]string{
		"X-Budget-Reason": reasonName(r.Reason), "X-Budget-Limit": r.Limit, "X-Budget-Pool": r.Pool,
		"X-Budget-Scope": headerValue(r.Scope), "X-Budget-Meter": r.Meter,
		"X-Budget-Asked": strconv.FormatInt(r.Asked, 10), "X-Budget-Remaining": strconv.FormatInt(r.Remaining, 10),
	} {
		if value != "" {
			f.Header.Set(name, value)
		}
	}
	if at := refused.ResetsAt(); !at.IsZero() {
		f.Header.Set("X-Budget-Resets-At", at.UTC().Format(time.RFC3339))
	}
	return f
}

func refusalMessage(refused *budget.RefusedError) string {
	var rpc *connect.Error
	if errors.As(refused.Err, &rpc) {
		return "budget: " + rpc.Message()
	}
	return "budget: " + refused.Error()
}

// headerValue drops a value that no header can carry.
func headerValue(value string) string {
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return ""
		}
	}
	return value
}

// reasonName is a refusal's reason as headers have it.
func reasonName(reason budgetv1.RefusalReason) string {
	switch reason {
	case budgetv1.RefusalReason_REFUSAL_REASON_RATE_LIMITED:
		return "rate_limited"
	case budgetv1.RefusalReason_REFUSAL_REASON_CONCURRENCY_LIMITED:
		return "concurrency_limited"
	case budgetv1.RefusalReason_REFUSAL_REASON_QUOTA_EXHAUSTED:
		return "quota_exhausted"
	case budgetv1.RefusalReason_REFUSAL_REASON_QUOTA_HELD:
		return "quota_held"
	case budgetv1.RefusalReason_REFUSAL_REASON_EXCEEDS_CAPACITY:
		return "exceeds_capacity"
	case budgetv1.RefusalReason_REFUSAL_REASON_ENVELOPE_EXHAUSTED:
		return "envelope_exhausted"
	case budgetv1.RefusalReason_REFUSAL_REASON_BANNED:
		return "banned"
	}
	return ""
}
