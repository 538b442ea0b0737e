package proxy

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/budgetd/budgetd/clients/go/transport"
)

// Headers by which a caller says more about a call.
const (
	headerBudgetAccount = "X-Budget-Account" // for a key that has several
	headerBudgetLabels  = "X-Budget-Labels"  // "route=chat, team=search"

	headerBudgetPriority = "X-Budget-Priority" // batch, default, interactive or critical
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
		if name == "model" || name == "provider" {
			return nil, fmt.Errorf("%s states %s, which the proxy reads in the call itself: leave it out", headerBudgetLabels, name)
		}
		if labels[name] = value; len(labels) > maxLabels {
			return nil, fmt.Errorf("%s has more than %d labels", headerBudgetLabels, maxLabels)
		}
	}
	return labels, nil
}
