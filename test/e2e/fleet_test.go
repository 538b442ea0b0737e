package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/servers"
)

// fleet is three brokers on one Redis and one PostgreSQL.
type fleet struct {
	brokers  []*broker.Broker
	redis    string // URL
	postgres string // DSN
	prefix   string
	key      string // reaches every account
}

const fleetSize = 3

func startFleet(tb testing.TB, redisURL, policy string, more ...string) *fleet {
	tb.Helper()
	f := &fleet{redis: redisURL, postgres: servers.FreshDatabase(tb), prefix: servers.Prefix(tb)}
	broker.Apply(tb, policy, "--postgres", f.postgres, "--single-node")
	f.key = strings.TrimSpace(broker.Run(tb, "key", "create", "e2e", "--admin", "--json=false", "--postgres", f.postgres, "--single-node"))
	for range fleetSize {
		f.add(tb, more...)
	}
	return f
}

func (f *fleet) add(tb testing.TB, more ...string) *broker.Broker {
	tb.Helper()
	b := broker.Start(tb, append([]string{"--redis", f.redis, "--postgres", f.postgres, "--key-prefix", f.prefix}, more...)...)
	f.brokers = append(f.brokers, b)
	return b
}

// client asks the n-th broker.
func (f *fleet) client(tb testing.TB, n int, options ...budget.Option) *budget.Client {
	tb.Helper()
	return newClient(tb, f.brokers[n%len(f.brokers)].URL, f.key, options...)
}

func newClient(tb testing.TB, url, key string, options ...budget.Option) *budget.Client {
	tb.Helper()
	c, err := budget.New(url, key, options...)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func overview(tb testing.TB, c *budget.Client, account string) *budgetv1.GetQuotaResponse {
	tb.Helper()
	answer, err := c.Service().GetQuota(context.Background(), connect.NewRequest(&budgetv1.GetQuotaRequest{Account: account}))
	if err != nil {
		tb.Fatal(err)
	}
	return answer.Msg
}

func limitOf(tb testing.TB, view *budgetv1.GetQuotaResponse, name string) *budgetv1.LimitStatus {
	tb.Helper()
	for _, limit := range view.Limits {
		if limit.Limit == name {
			return limit
		}
	}
	tb.Fatalf("no limit %q in %v", name, view.Limits)
	return nil
}

// eventually polls, because what it waits for is done by other processes.
func eventually(tb testing.TB, within time.Duration, what string, reached func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(within); ; {
		if reached() {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// post sends JSON as curl does and returns the status, the headers and the
// decoded body.
func post(tb testing.TB, url, key, method, body string) (int, http.Header, map[string]any) {
	tb.Helper()
	request, err := http.NewRequest(http.MethodPost, url+"/budget.v1.BudgetService/"+method, bytes.NewBufferString(body))
	if err != nil {
		tb.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		tb.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		tb.Fatal(err)
	}
	var decoded map[string]any
	if err := json.Unmarshal(text, &decoded); err != nil {
		tb.Fatalf("%s: %v in %s", method, err, text)
	}
	return answer.StatusCode, answer.Header, decoded
}

// manyAccounts is a policy with one bucket of 1,000 that refills 1 a day, and
// accounts that each test run takes a fresh one of.
func manyAccounts(n int) string {
	var policy strings.Builder
	policy.WriteString(`
plans:
  small:
    limits:
      - {name: tokens, meter: tokens, rate: 1/day, burst: 1000}
    quotas:
      - {name: month, meter: tokens, amount: 9007199254740991, period: month}
accounts:
`)
	for i := range n {
		fmt.Fprintf(&policy, "  never-over-%d: {plan: small}\n", i)
	}
	return policy.String()
}

// sharedFleet serves every run of TestNeverOver: with -count the runs share a
// process.
var sharedFleet struct {
	once sync.Once
	*fleet
	runs atomic.Int64
}
