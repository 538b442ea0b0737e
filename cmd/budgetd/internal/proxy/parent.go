package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/transport"
)

// headerBudgetParent is the id of the reservation that is a call's envelope.
const headerBudgetParent = "X-Budget-Parent"

// maxParent bounds that id, as the broker does.
const maxParent = 16 << 10

// parentOf is the envelope of a call, and how long the call may wait beside it: one in
// an envelope starts at once.
func (p *Proxy) parentOf(header http.Header) (parent string, wait *time.Duration, err error) {
	wait, err = p.maxWaitOf(header)
	values := header.Values(headerBudgetParent)
	if err != nil || len(values) == 0 {
		return "", wait, err
	}
	parent = values[0]
	waits := len(header.Values(headerBudgetMaxWait)) > 0 && *wait > 0
	switch {
	case len(values) > 1:
		return "", nil, fmt.Errorf("there are several headers %s: send one", headerBudgetParent)
	case parent == "" || len(parent) > maxParent || !isPrintable(parent):
		return "", nil, fmt.Errorf("%s is no id of a reservation: send what Reserve answered, 1 to %d bytes of printable ASCII, or leave it out", headerBudgetParent, maxParent)
	case waits:
		return "", nil, fmt.Errorf("%s and %s are both stated, and a call in an envelope starts at once: leave one out", headerBudgetParent, headerBudgetMaxWait)
	}
	return parent, nil, nil
}

func isPrintable(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// stoppedFault is the answer to a call that ended with its envelope; nil: it did not.
func stoppedFault(err error) *transport.Fault {
	var stopped *budget.StoppedError
	if !errors.As(err, &stopped) {
		return nil
	}
	return &transport.Fault{
		Kind: transport.FaultInvalid, Message: "budget proxy: the envelope of the call (" + headerBudgetParent + ") was closed, or its lease has ended",
		Header: http.Header{"X-Budget-Error": {"failed_precondition"}},
	}
}
