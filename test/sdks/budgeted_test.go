package sdks

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/transport"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/provider"
)

func TestMain(m *testing.M) { broker.Main(m) }

const policy = `
plans:
  pro:
    limits:
      - {name: in-flight, meter: in_flight, max: 100}
    quotas:
      - {name: input, meter: input_tokens, amount: 100M, period: year}
      - {name: output, meter: output_tokens, amount: 100M, period: year}
      - {name: spend, meter: cost, amount: $10000, period: year}
  spent:
    quotas:
      - {name: spend, meter: cost, amount: $0.000000001, period: year}
  paced:
    limits:
      - {name: calls, meter: requests, rate: 60/min, burst: 1}
accounts:
  team: {plan: pro}
  poor: {plan: spent}
  slow: {plan: paced}
`

// rig is a broker with its keys, and the provider.
type rig struct {
	*provider.Provider
	bases  bases // of the provider
	broker *broker.Broker
	data   string
	key    string // of the account team
	client *budget.Client
}

// start starts all of it. The broker's prices are the provider's list.
func start(t testing.TB) *rig {
	t.Helper()
	r := &rig{data: t.TempDir()}
	r.Provider, r.bases = startProvider(t)
	broker.Apply(t, policy, "--data", r.data)
	r.key = r.keyOf(t, "team")
	file := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(file, []byte(priceFile()), 0o600); err != nil {
		t.Fatal(err)
	}
	r.broker = broker.Start(t, "--data", r.data, "--prices", file, "--deadline", "2s")
	client, err := budget.New(r.broker.URL, r.key)
	if err != nil {
		t.Fatal(err)
	}
	r.client = client
	return r
}

func (r *rig) keyOf(t testing.TB, account string) string {
	t.Helper()
	return broker.Key(t, []string{account}, "--data", r.data)
}

// priceFile is the provider's list as the broker reads it.
func priceFile() string {
	var text strings.Builder
	text.WriteString("models:\n")
	hosts := map[string]string{gpt: "openai", vector: "openai", claude: "anthropic", flash: "google"}
	for model, p := range prices {
		mode := "chat"
		if model == vector {
			mode = "embedding"
		}
		fmt.Fprintf(&text, "  - {provider: %s, id: %s, mode: %s, max_output: 4096, usd_per_million: {", hosts[model], model, mode)
		var parts []string
		for _, class := range []struct {
			name string
			nano int64
		}{
			{"input", p.Input}, {"cache_read", p.CacheRead}, {"cache_write", p.CacheWrite}, {"cache_write_1h", p.CacheWrite1h}, {"output", p.Output},
		} {
			if class.nano > 0 {
				parts = append(parts, fmt.Sprintf("%s: %d.%09d", class.name, class.nano/1e9, class.nano%1e9))
			}
		}
		text.WriteString(strings.Join(parts, ", ") + "}}\n")
	}
	return text.String()
}

// books are what the broker's ledger has of the account, and what is under way:
// held, or charged and not in the ledger yet.
type books struct{ Input, Output, Cost, UnderWay int64 }

func (b books) minus(o books) books {
	return books{b.Input - o.Input, b.Output - o.Output, b.Cost - o.Cost, b.UnderWay - o.UnderWay}
}

func (r *rig) ledger(t testing.TB) books {
	t.Helper()
	answer, err := r.client.Service().GetQuota(context.Background(), connect.NewRequest(&budgetv1.GetQuotaRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	b := books{Input: answer.Msg.Totals["input_tokens"], Output: answer.Msg.Totals["output_tokens"], Cost: answer.Msg.Totals["cost"]}
	for _, limit := range answer.Msg.Limits {
		b.UnderWay += limit.Held
		if limit.Period != "" { // what a quota counts is in the ledger a moment later
			b.UnderWay += max(limit.Used-answer.Msg.Totals[limit.Meter], 0)
		}
	}
	return b
}

// provided are the provider's books.
func (r *rig) provided() books {
	tokens, cost := r.Totals()
	return books{
		Input:  tokens.Input + tokens.CacheRead + tokens.CacheWrite + tokens.CacheWrite1h,
		Output: tokens.Output + tokens.Reasoning, Cost: cost,
	}
}

// settled waits until nothing is under way, and returns the ledger. What is held
// for longer than a Refund takes has leaked: leases are a minute.
func (r *rig) settled(t testing.TB) books {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) { // a real process: poll, with a deadline
		b := r.ledger(t)
		if b.UnderWay == 0 {
			return b
		}
		if time.Now().After(deadline) {
			t.Fatalf("still under way: %+v", b)
		}
	}
}

// runAll runs the scenarios, and compares the ledger with the provider's books
// after each.
func (r *rig) runAll(t *testing.T, c clients, list []scenario) {
	before := r.settled(t)
	for _, s := range list {
		t.Run(s.name(), func(t *testing.T) {
			provided := r.provided()
			s.run(t, c, r.Provider)
			after := r.settled(t)
			got, want := after.minus(before), r.provided().minus(provided)
			before = after
			if s.cut && (s.endpoint.model == claude || s.endpoint.model == flash) {
				// The output of a model without a public tokenizer is at least
				// what the text that was seen is expected to be.
				if got.Output < want.Output {
					t.Errorf("charged %+v, less than the provider bills: %+v", got, want)
				}
				got.Output, got.Cost, want.Output, want.Cost = 0, 0, 0, 0
			}
			if got != want {
				t.Errorf("the ledger has\n%+v, the provider bills\n%+v", got, want)
			}
		})
	}
}

// Through the Transport, the ledger is what the provider bills.
func TestTransport(t *testing.T) {
	r := start(t)
	budgeted := transport.New(r.client)
	r.runAll(t, newClients(t, r.bases, providerKey, &http.Client{Transport: budgeted}), scenarios())
}
