package estimator

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/budgetd/budgetd/estimator/family"
	"github.com/budgetd/budgetd/quota"
)

// pricedBy returns an estimator that follows the prices, named provider/model
// with their input price in dollars per million, each from an instant on.
func pricedBy(t *testing.T, cfg Config, prices ...quota.ModelPrice) *Estimator {
	t.Helper()
	policy, err := quota.NewPolicy(nil, nil, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	if policy, err = policy.With(prices, nil); err != nil {
		t.Fatal(err)
	}
	cfg.Policy = func() *quota.Policy { return policy }
	return newEstimator(t, cfg)
}

func stated(provider, model string, from time.Time, input PerMillion) quota.ModelPrice {
	return quota.ModelPrice{Provider: provider, Model: model, From: from, Rates: map[string]quota.NanoUSD{
		"input": quota.NanoUSD(input), "output": quota.NanoUSD(2 * input),
	}}
}

// The policy's price stands before the catalogue's from its instant on, under
// the caller's names first.
func TestPolicyPrices(t *testing.T) {
	from := anyDay
	e := pricedBy(t, Config{},
		stated("openai", "gpt-4o", from, 1*usd), stated("openai", "gpt-4o", from.Add(time.Hour), 2*usd),
		stated("openai", "GPT-4o-2024-11-20", from, 3*usd), stated("azure", "gpt-4o", from, 4*usd),
		stated("Acme", "My-Model", from, 5*usd))
	catalogue := func(provider, model string) PerMillion {
		m, ok := e.Catalogue().Lookup(provider, model)
		if !ok {
			t.Fatalf("the catalogue has no %s/%s", provider, model)
		}
		return m.Price.Base.Input
	}
	for _, tt := range []struct {
		provider, model string
		at              time.Time
		input           PerMillion
		priced, known   string // names of the price and of the model
	}{
		{"openai", "gpt-4o", from.Add(-1), catalogue("openai", "gpt-4o"), "openai/gpt-4o", "openai/gpt-4o"},
		{"openai", "gpt-4o", from, 1 * usd, "openai/gpt-4o", "openai/gpt-4o"},
		{"openai", "gpt-4o", from.Add(time.Hour - 1), 1 * usd, "openai/gpt-4o", "openai/gpt-4o"},
		{"OpenAI", "GPT-4O", from.Add(time.Hour), 2 * usd, "openai/gpt-4o", "openai/gpt-4o"},
		{"", "gpt-4o", from, 1 * usd, "openai/gpt-4o", "openai/gpt-4o"},
		{"", "openai/gpt-4o", from, 1 * usd, "openai/gpt-4o", "openai/gpt-4o"},
		{"openai", "openai/gpt-4o", from, 1 * usd, "openai/gpt-4o", "openai/gpt-4o"},
		// Another snapshot than the one with a price of its own.
		{"openai", "gpt-4o-2024-08-06", from, 1 * usd, "openai/gpt-4o", "openai/gpt-4o"},
		{"openai", "gpt-4o-2024-11-20", from, 3 * usd, "openai/GPT-4o-2024-11-20", "openai/gpt-4o"},
		// At a host, which the catalogue refers to the maker.
		{"azure", "gpt-4o-2024-08-06", from, 4 * usd, "azure/gpt-4o", "openai/gpt-4o"},
		{"openai", "gpt-4o-mini", from, catalogue("openai", "gpt-4o-mini"), "openai/gpt-4o-mini", "openai/gpt-4o-mini"},
		// What only the policy knows.
		{"acme", "my-model", from, 5 * usd, "Acme/My-Model", "Acme/My-Model"},
		{"", "acme/my-model", from, 5 * usd, "Acme/My-Model", "Acme/My-Model"},
	} {
		m, err := e.ModelAt(tt.provider, tt.model, tt.at)
		if err != nil {
			t.Errorf("%s/%s: %v", tt.provider, tt.model, err)
			continue
		}
		if m.Price.Base.Input != tt.input || m.Price.Provider+"/"+m.Price.Model != tt.priced || m.Provider+"/"+m.ID != tt.known {
			t.Errorf("%s/%s at %s: $%d nano in, priced as %s/%s, known as %s/%s; want %+v", tt.provider, tt.model, tt.at,
				m.Price.Base.Input, m.Price.Provider, m.Price.Model, m.Provider, m.ID, tt)
		}
	}
	for _, name := range [][2]string{{"acme", "my-model"}, {"", "my-model"}} {
		at := from.Add(-1)
		if name[0] == "" {
			at = from
		}
		if _, err := e.ModelAt(name[0], name[1], at); !errors.Is(err, ErrUnknownModel) {
			t.Errorf("%v at %s: %v, want an unknown model", name, at, err)
		}
	}
}

// A price of the policy has all classes and its own version, and an estimate
// costs what it says.
func TestEstimateAtAPolicyPrice(t *testing.T) {
	whole := quota.ModelPrice{Provider: "acme", Model: "my-model", From: anyDay, Rates: map[string]quota.NanoUSD{
		"input": 1000, "output": 4000, "cache_read": 100, "cache_write": 1250, "cache_write_1h": 2000, "reasoning": 5000,
	}}
	plain := stated("google", "gemini-2.5-pro", anyDay, 7*usd)
	e := pricedBy(t, Config{UnknownModel: &Ceiling{Input: usd, Output: usd}}, whole, plain)
	m, err := e.ModelAt("acme", "my-model", anyDay)
	if err != nil {
		t.Fatal(err)
	}
	if want := textRates(1000, 100, 1250, 2000, 4000, 5000); withoutSearch(m.Price.Base) != want {
		t.Errorf("rates %+v, want %+v", m.Price.Base, want)
	}
	got, err := e.Estimate(Call{Provider: "acme", Model: "my-model", InputTokens: tokens(2_000_000), MaxOutputTokens: tokens(1_000_000)}, anyDay)
	if err != nil || got.Cost != 2*1250+5000 || got.PriceVersion != "policy:acme/my-model@2026-12-01T00:00:00Z" || got.Model != "my-model" || got.Provider != "acme" {
		t.Errorf("%+v, %v", got, err)
	}
	// A conservative rule counts for a model without a public encoding.
	if counted := estimate(t, e, Call{Provider: "acme", Model: "my-model", Prompt: "Hello", MaxOutputTokens: tokens(1)}); counted.Method != "rule/"+family.Of("my-model").Family || counted.Input.Ceiling < 1 {
		t.Errorf("counted %+v", counted)
	}
	// A name of the operator's own, as of a server of his, writes as OpenAI does.
	body := Call{Provider: "acme", ProviderRequest: map[string]any{
		"model": "my-model", "max_tokens": json.Number("3"), "messages": []any{map[string]any{"role": "user", "content": "Hello"}},
	}}
	if counted := estimate(t, e, body); counted.Input.Ceiling < 1 || counted.Output.Ceiling != 3 || counted.Provider != "acme" {
		t.Errorf("counted %+v", counted)
	}
	// The catalogue's tiers are not the policy's.
	gemini, err := e.ModelAt("google", "gemini-2.5-pro", anyDay)
	if err != nil || withoutSearch(gemini.Price.RatesFor(1_000_000)) != textRates(7*usd, 7*usd, 7*usd, 7*usd, 14*usd, 14*usd) || gemini.MaxOutput == 0 {
		t.Errorf("%+v, %v", gemini, err)
	}
}

// A price of the policy may have units, steps for long inputs and service tiers,
// by the words of a prices file, and costs what the same file would.
func TestPolicyPriceWithUnitsStepsAndServices(t *testing.T) {
	price := quota.ModelPrice{
		Provider: "acme", Model: "my-model", From: anyDay,
		Rates: map[string]quota.NanoUSD{"input": 1_000_000_000, "output": 4_000_000_000, "search": 10_000_000, "second": 100_000, "image": 40_000_000},
		Tiers: []quota.PriceTier{{Above: 200_000, Rates: map[string]quota.NanoUSD{"input": 2_000_000_000, "search": 20_000_000}}},
		Services: []quota.PriceService{
			{Name: "batch", Rates: map[string]quota.NanoUSD{"input": 500_000_000, "output": 2_000_000_000}, Tiers: []quota.PriceTier{{Above: 200_000, Rates: map[string]quota.NanoUSD{"input": 1_000_000_000}}}},
			{Name: "fast", Rates: map[string]quota.NanoUSD{"output": 40_000_000_000}},
		},
	}
	if err := price.Validate(); err != nil {
		t.Fatal(err)
	}
	policy, err := pricedBy(t, Config{}, price).ModelAt("acme", "my-model", anyDay)
	if err != nil {
		t.Fatal(err)
	}
	overrides, err := ParseOverrides([]byte(`
models:
  - provider: acme
    id: my-model
    usd_per_million: {input: 1, output: 4}
    usd_each: {search: 0.01, second: 0.0001, image: 0.04}
    tiers: [{above: 200000, usd_per_million: {input: 2}, usd_each: {search: 0.02}}]
    services:
      batch: {usd_per_million: {input: 0.5, output: 2}, tiers: [{above: 200000, usd_per_million: {input: 1}}]}
      fast: {usd_per_million: {output: 40}}
`))
	if err != nil {
		t.Fatal(err)
	}
	embedded, err := EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	file, _ := embedded.With(overrides).LookupAt("acme", "my-model", anyDay)
	for _, c := range []struct {
		name string
		use  Use
		want quota.NanoUSD
	}{
		{"usual", Use{Tokens: TokenClasses{Input: 1000, Output: 100}}, 1_000_000 + 400_000},
		{"a long input", Use{Tokens: TokenClasses{Input: 200_001}}, 400_002_000},
		{"units", Use{Units: Units{Searches: 3, Seconds: 1500, Images: 1}}, 30_000_000 + 150_000 + 40_000_000},
		{"searches of a long input", Use{Tokens: TokenClasses{Input: 200_001}, Units: Units{Searches: 1}}, 400_002_000 + 20_000_000},
		{"a batch", Use{Tokens: TokenClasses{Input: 1000, Output: 100}, Tier: "batch"}, 500_000 + 200_000},
		{"a long batch", Use{Tokens: TokenClasses{Input: 200_001}, Tier: "batch"}, 200_001_000},
		{"at speed", Use{Tokens: TokenClasses{Input: 1000, Output: 100}, Speed: "fast"}, 1_000_000 + 4_000_000},
	} {
		got, err := policy.Price.Cost(c.use)
		same, errOfFile := file.Price.Cost(c.use)
		if err != nil || errOfFile != nil || got != c.want || same != got {
			t.Errorf("%s: %s, %v; the file says %s, %v; want %s", c.name, got, err, same, errOfFile, c.want)
		}
	}
}

// withoutSearch are rates without the price of a search, of which the catalogue
// has the dearest where nobody states one.
func withoutSearch(r Rates) Rates {
	r.Search = NoPrice
	return r
}
