package transport

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/budgetd/budgetd/estimator/answer"
)

// UnrecognisedError says of a call why no endpoint of a Transport matches it.
// [WithEndpoints] adds endpoints.
type UnrecognisedError struct {
	Method string
	Host   string // without its port
	Path   string // without the query
	Reason Unrecognised
	Hosts  string // the pattern of the hosts where the call would be one; only for OtherHost
}

// Unrecognised is why a call is not recognised.
type Unrecognised int

// The reasons.
const (
	UnknownPath Unrecognised = iota // no endpoint has such a path
	OtherMethod                     // one has, but only POST is budgeted
	OtherHost                       // one has, of other hosts
)

// maxShownPath bounds what is shown of a path, in bytes.
const maxShownPath = 200

// Error says it in plain words.
func (e *UnrecognisedError) Error() string {
	shown := e.Path
	if len(shown) > maxShownPath {
		shown = strings.ToValidUTF8(shown[:maxShownPath], "") + "…"
	}
	switch e.Reason {
	case OtherMethod:
		return fmt.Sprintf("%s %s is not budgeted: only POST is", e.Method, shown)
	case OtherHost:
		return fmt.Sprintf("%s %s is not budgeted at %s: only at %s", e.Method, shown, e.Host, e.Hosts)
	}
	return fmt.Sprintf("%s %s is not one of the calls that are budgeted", e.Method, shown)
}

// unrecognised says why a request that no endpoint matches is not recognised.
func (t *Transport) unrecognised(request *http.Request) *UnrecognisedError {
	e := &UnrecognisedError{Method: request.Method, Host: hostOf(request), Path: request.URL.Path}
	if e.Method == "" {
		e.Method = http.MethodGet
	}
	if found, _ := t.find(request); found != nil {
		e.Reason = OtherMethod
		return e
	}
	if _, stated := request.Context().Value(providerKey{}).(string); stated {
		return e // the host does not matter
	}
	segments := segmentsOf(request.URL)
	for i := range t.endpoints {
		if _, ok := t.endpoints[i].matchPath(segments); ok {
			e.Reason, e.Hosts = OtherHost, t.endpoints[i].Host
			break
		}
	}
	return e
}

// refuseUnrecognised is what WithRefuseUnrecognised answers.
func refuseUnrecognised(request *http.Request, err *UnrecognisedError) *http.Response {
	f := &Fault{Kind: FaultDenied, Message: "budget: " + err.Error()}
	return f.Answer(request, answer.OpenAI)
}
