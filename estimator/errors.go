package estimator

import (
	"errors"
	"fmt"
)

// The kinds of refusal. Match them with errors.Is; errors.As gives the details.
var (
	// ErrInvalidCall: a field of a call, provider request or usage object is
	// missing, contradictory, out of range or not estimable ([CallError]).
	ErrInvalidCall = errors.New("invalid call")
	// ErrTooLarge: the text is over Config.MaxTextBytes ([TooLargeError]).
	ErrTooLarge = errors.New("text too large")
	// ErrUnknownModel: no catalogue entry prices the model ([UnknownModelError]).
	ErrUnknownModel = errors.New("unknown model")
	// ErrBusy: the context ended before the text was counted. Nothing is wrong
	// with the call.
	ErrBusy = errors.New("the text was not counted in time: too much is being counted, or it is too long for the deadline; try again, or count it yourself and give input_tokens")
	// ErrCatalogue: a price catalogue or an override file is malformed.
	ErrCatalogue = errors.New("bad price catalogue")
)

// CallError names the field at fault and says what to do. It wraps
// [ErrInvalidCall]. It never contains prompt text.
type CallError struct {
	Field  string // path from the call, such as "provider_request.messages[3].content[1].type"
	Reason string
}

func (e *CallError) Error() string { return e.Field + ": " + e.Reason }

// Unwrap returns [ErrInvalidCall].
func (e *CallError) Unwrap() error { return ErrInvalidCall }

func invalid(field, format string, args ...any) error {
	return &CallError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// TooLargeError says that the text of a call passes the byte bound. It wraps
// [ErrTooLarge].
type TooLargeError struct {
	Field    string // where the bound was passed
	MaxBytes int    // Config.MaxTextBytes, the bound over all text of the call
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s: the text of the call is over %d bytes; send less text, or count it yourself and give input_tokens",
		e.Field, e.MaxBytes)
}

// Unwrap returns [ErrTooLarge].
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// UnknownModelError says that no price is known for a model. It wraps
// [ErrUnknownModel].
type UnknownModelError struct {
	Provider string // as asked, or ""
	Model    string // as asked
	// Near is a model of the provider whose name is spelled much alike, and
	// Elsewhere a provider that has the model; "" for none.
	Near, Elsewhere string
}

func (e *UnknownModelError) Error() string {
	at := ""
	if e.Provider != "" {
		at = fmt.Sprintf(" of provider %q", e.Provider)
	}
	meant := ""
	switch {
	case e.Near != "":
		meant = fmt.Sprintf("did you mean %q? ", e.Near)
	case e.Elsewhere != "":
		meant = fmt.Sprintf("the provider %q has a model of that name. ", e.Elsewhere)
	}
	return fmt.Sprintf("model: no price is known for %q%s; %scheck the name, add its price (budgetd prices set, or a file of prices), or configure a ceiling price for unknown models",
		e.Model, at, meant)
}

// Unwrap returns [ErrUnknownModel].
func (e *UnknownModelError) Unwrap() error { return ErrUnknownModel }
