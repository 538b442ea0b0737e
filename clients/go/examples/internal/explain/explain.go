// Package explain says why a call failed and what to do, in the same way for every
// SDK.
package explain

import (
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"
)

// The codes with which a program ends.
const (
	failed = 1
	later  = 75 // EX_TEMPFAIL of sysexits.h: the same call can pass later
)

// Exit writes to standard error what the broker or the provider said, and what to
// do, and ends the program: with 75 where trying again later can help, else with 1.
func Exit(err error) {
	text, code := explain(err)
	fmt.Fprintln(os.Stderr, text)
	os.Exit(code)
}

func explain(err error) (text string, code int) {
	var fromOpenAI *openai.Error
	var fromAnthropic *anthropic.Error
	switch {
	case errors.As(err, &fromOpenAI):
		return answered(fromOpenAI.StatusCode, fromOpenAI.Response, fromOpenAI.Message)
	case errors.As(err, &fromAnthropic):
		return answered(fromAnthropic.StatusCode, fromAnthropic.Response, fromAnthropic.Message)
	}
	return fmt.Sprintf("the call got no answer: %v\nCheck the provider's address and the network.", err), later
}

// answered explains an answer that is an error. The Transport's own have headers
// that begin with X-Budget.
func answered(status int, response *http.Response, message string) (text string, code int) {
	header := http.Header{}
	if response != nil {
		header = response.Header
	}
	who := "the provider"
	if header.Get("X-Budget-Error") != "" || header.Get("X-Budget-Reason") != "" {
		who = "the budget"
	}
	if message == "" {
		message = "without a reason"
	}
	todo, code := "Look at what was sent.", failed
	switch wait := header.Get("Retry-After"); {
	case header.Get("X-Should-Retry") == "false" && status == http.StatusTooManyRequests:
		todo = "Waiting does not help: ask for less, or for a larger budget."
	case status == http.StatusTooManyRequests && wait != "":
		todo, code = fmt.Sprintf("Try again in %s s.", wait), later
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		todo, code = "Try again later.", later
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		todo = "Check the key, and what it may do."
	}
	if limit := header.Get("X-Budget-Limit"); limit != "" {
		todo = fmt.Sprintf("The limit is %q. %s", limit, todo)
	}
	return fmt.Sprintf("%s answered %d: %s\n%s", who, status, message, todo), code
}
