package proxy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/transport"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// Headers by which a caller says more about a call.
const (
	headerBudgetAccount = "X-Budget-Account" // for a key that has several
	headerBudgetLabels  = "X-Budget-Labels"  // "route=chat, team=search"
)

// maxLabels is how many labels the broker takes.
const maxLabels = 32

// call is what the proxy knows of a call under way.
type call struct {
	route  route
	caller transport.Caller
	upload *upload

	connected atomic.Bool // to the upstream
}

type callKey struct{}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// labelsOf reads the labels of a call.
func labelsOf(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	labels := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || value == "" {
			return nil, fmt.Errorf("%s is not name=value, with commas between", headerBudgetLabels)
		}
		if labels[name] = value; len(labels) > maxLabels {
			return nil, fmt.Errorf("%s has more than %d labels", headerBudgetLabels, maxLabels)
		}
	}
	return labels, nil
}

var errUnknownKey = errors.New("the broker does not know the key")

// known asks the broker whether it knows the key of a client. It fails with
// errUnknownKey, or because the broker does not answer, where when_down refuses.
func (c *clients) known(ctx context.Context, client *budget.Client) error {
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	defer cancel()
	_, err := client.Service().GetQuota(ctx, connect.NewRequest(&budgetv1.GetQuotaRequest{}))
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated:
		c.learn(client, false)
		return errUnknownKey
	case connect.CodeInvalidArgument, connect.CodePermissionDenied, connect.CodeNotFound:
		// It wants to be asked otherwise, as for a key of several accounts.
	default:
		switch {
		case err == nil:
		case c.follows(client):
			return nil
		default:
			return err
		}
	}
	c.learn(client, true)
	return nil
}
