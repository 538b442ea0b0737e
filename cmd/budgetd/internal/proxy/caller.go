package proxy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

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
	free   bool // not to be reserved
	caller transport.Caller
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

// maxClients bounds how many keys are remembered.
const maxClients = 4096

// clients has one client of the broker for each budget key that calls, all on
// the same connections.
type clients struct {
	broker string
	http   *http.Client

	mu    sync.Mutex
	byKey map[[sha256.Size]byte]*budget.Client // by the key's hash
}

func (c *clients) of(key string) (*budget.Client, error) {
	hash := sha256.Sum256([]byte(key))
	c.mu.Lock()
	defer c.mu.Unlock()
	if client := c.byKey[hash]; client != nil {
		return client, nil
	}
	client, err := budget.New(c.broker, key, budget.WithHTTPClient(c.http))
	if err != nil {
		return nil, err
	}
	if len(c.byKey) >= maxClients {
		for other := range c.byKey { // any: calls under way keep theirs
			delete(c.byKey, other)
			break
		}
	}
	if c.byKey == nil {
		c.byKey = map[[sha256.Size]byte]*budget.Client{}
	}
	c.byKey[hash] = client
	return client, nil
}

var errUnknownKey = errors.New("the broker does not know the key")

// known asks the broker whether it knows the key of a client. It fails with
// errUnknownKey, or because the broker does not answer.
func known(ctx context.Context, client *budget.Client) error {
	_, err := client.Service().GetQuota(ctx, connect.NewRequest(&budgetv1.GetQuotaRequest{}))
	if err == nil {
		return nil
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated:
		return errUnknownKey
	case connect.CodeInvalidArgument, connect.CodePermissionDenied, connect.CodeNotFound:
		return nil // it wants to be asked otherwise, as for a key of several accounts
	}
	return err
}
