package middleware

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/internal/pause"
)

// refuse answers a call that does not go on: 429 when a limit refused, 503 when
// no broker answered, 500 when the broker can't serve what was asked, such as an
// account that it does not know.
func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has hung up
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	var refused *budget.RefusedError
	var early *budget.NotStartedError
	switch code := connect.CodeOf(err); {
	case errors.As(err, &refused):
		maps.Copy(header, refused.LimitHeaders)
		if wait := waitFor(refused, time.Now()); wait > 0 {
			header.Set("Retry-After", strconv.FormatInt(wait, 10))
		}
	case errors.As(err, &early): // its start comes after its deadline
		header.Set("Retry-After", strconv.FormatInt(pause.Seconds(early.In), 10))
	case code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded:
		header.Set("Retry-After", "1")
	default:
		m.options.logger.ErrorContext(r.Context(), "the budget of a call could not be asked for", "error", err)
	}
	m.options.refuse(w, r, err)
}

// waitFor is how many seconds to wait, rounded up and at least 1; 0 when waiting
// does not help.
func waitFor(refused *budget.RefusedError, now time.Time) int64 {
	wait := refused.RetryAfter
	switch resets := refused.ResetsAt(); {
	case wait > 0 || refused.Retryable():
	case refused.NeverFits() || resets.IsZero():
		return 0
	default:
		// A quota that is used up, of a broker that answers 403 and states no wait.
		wait = resets.Sub(now)
	}
	return pause.Seconds(wait)
}

// refusal is the body of an answer to a call that did not go on.
type refusal struct {
	Error string `json:"error"`
	Limit string `json:"limit,omitempty"`
}

// refuseJSON is the answer unless [WithRefuse] gives another. It tells nothing of
// the account.
func refuseJSON(w http.ResponseWriter, _ *http.Request, err error) {
	status, body := http.StatusInternalServerError, refusal{Error: "this call could not be checked"}
	var refused *budget.RefusedError
	switch code := connect.CodeOf(err); {
	case errors.As(err, &refused):
		status, body = http.StatusTooManyRequests, refusal{Error: "too many requests", Limit: refused.Refusal.GetLimit()}
	case code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded:
		status, body.Error = http.StatusServiceUnavailable, "this call can't be checked at the moment, try again"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may be gone; nobody else wants to know.
	_ = json.NewEncoder(w).Encode(body)
}
