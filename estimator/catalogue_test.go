package estimator

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/budgetd/budgetd/estimator/catalogue"
)

func embeddedFor(t testing.TB) *Catalogue {
	t.Helper()
	c, err := EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLookup(t *testing.T) {
	c := embeddedFor(t)
	for _, tt := range []struct{ provider, model, wantProvider, want string }{
		{"", "gpt-4o-mini", "openai", "gpt-4o-mini"},
		{"", "GPT-4o-mini", "openai", "gpt-4o-mini"},
		{"", "gpt-4o-mini-2024-07-18", "openai", "gpt-4o-mini"},
		{"openai", "gpt-4o-2024-08-06", "openai", "gpt-4o"},
		{"openai", "gpt-4o-2024-05-13", "openai", "gpt-4o-2024-05-13"}, // a price of its own
		{"openai", "gpt-4o-2031-01-02", "openai", "gpt-4o"},            // a snapshot not listed yet
		{"", "openai/gpt-4o", "openai", "gpt-4o"},
		{"openai", "openai/gpt-4o", "openai", "gpt-4o"},
		{"openai", "gpt-5.6-sol-2026-09-09", "openai", "gpt-5.6-sol"},
		{"", "ft:gpt-4o-mini-2024-07-18:acme::abc", "openai", "ft:gpt-4o-mini"},
		{"", "claude-sonnet-4-5-20250929", "anthropic", "claude-sonnet-4-5"},
		{"", "claude-opus-4-1-20250805", "anthropic", "claude-opus-4-1"},
		{"", "claude-sonnet-4-20250514", "anthropic", "claude-sonnet-4-0"},
		{"vertex", "claude-opus-4-5@20251101", "anthropic", "claude-opus-4-5"},
		{"gemini", "models/gemini-2.5-pro", "google", "gemini-2.5-pro"},
		{"", "gemini/gemini-2.5-flash", "google", "gemini-2.5-flash"},
		{"google", "gemini-2.0-flash-001", "google", "gemini-2.0-flash"},
		{"azure", "gpt-4o", "openai", "gpt-4o"},
		{"azure", "gpt-35-turbo", "openai", "gpt-3.5-turbo"},
		{"xai", "grok-4", "x-ai", "grok-4-0709"},
		{"groq", "llama-3.3-70b-versatile", "groq", "llama-3.3-70b-versatile"},
		{"", "llama-3.3-70b-versatile", "groq", "llama-3.3-70b-versatile"},
		{"mistral", "mistral-large-latest", "mistral", "mistral-large"},
	} {
		if m, ok := c.Lookup(tt.provider, tt.model); !ok || m.Provider != tt.wantProvider || m.ID != tt.want {
			t.Errorf("%s/%s: %s/%s, %t; want %s/%s", tt.provider, tt.model, m.Provider, m.ID, ok, tt.wantProvider, tt.want)
		}
	}
	for _, tt := range [][2]string{
		{"", ""}, {"", "gpt"}, {"", "gpt-4o-mini-evil"}, {"nobody", "gpt-4o"}, {"anthropic", "gpt-4o"}, {"groq", "gpt-4o"},
		{"", "gemini-2.5-pro-preview-tts"}, {"", "claude-opus-4-10"}, {"", "gpt-4o-realtime-preview"}, {"", "gpt-image-1"},
	} {
		if m, ok := c.Lookup(tt[0], tt[1]); ok {
			t.Errorf("%s/%s was taken for %s/%s", tt[0], tt[1], m.Provider, m.ID)
		}
	}
}

// textRates are those of a model of text, in the order input, cache read, cache
// write, one-hour cache write, output, reasoning.
func textRates(prices ...PerMillion) Rates {
	return StatedRates{Tokens: [numberOfClasses]*PerMillion{0: &prices[0], 4: &prices[1], 7: &prices[2], 8: &prices[3], 9: &prices[4], 13: &prices[5]}}.Complete()
}

// Prices as the providers publish them, in nano-USD per million.
func TestPublishedPrices(t *testing.T) {
	c := embeddedFor(t)
	for _, tt := range []struct {
		model string
		want  Rates
	}{
		{"gpt-4o-mini", textRates(150_000_000, 75_000_000, 150_000_000, 150_000_000, 600_000_000, 600_000_000)},
		{"gpt-4o-2024-05-13", textRates(5*usd, 5*usd, 5*usd, 5*usd, 15*usd, 15*usd)},
		{"claude-opus-4-5", textRates(5*usd, 500_000_000, 6_250_000_000, 10*usd, 25*usd, 25*usd)},
		{"text-embedding-3-small", textRates(20_000_000, 20_000_000, 20_000_000, 20_000_000, 20_000_000, 20_000_000)},
		{"claude-sonnet-5", textRates(3*usd, 300_000_000, 3_750_000_000, 6*usd, 15*usd, 15*usd)},
	} {
		if p, ok := c.Price(tt.model); !ok || p.Base != tt.want {
			t.Errorf("%s: %+v, %t; want %+v", tt.model, p.Base, ok, tt.want)
		}
	}
	p, _ := c.Price("gemini-2.5-pro")
	if at, above := p.RatesFor(200_000), p.RatesFor(200_001); at.Input != 1_250_000_000 || above.Input != 2_500_000_000 || above.Output != 15*usd {
		t.Errorf("gemini-2.5-pro: %+v at 200,000 and %+v above", at, above)
	}
}

func TestEveryEntryIsFoundAndPriced(t *testing.T) {
	file, err := catalogue.Decode(catalogue.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	c := embeddedFor(t)
	n := 0
	for _, p := range file.Providers {
		for _, m := range p.Models {
			n++
			for _, name := range append([]string{m.ID}, m.Names...) {
				got, ok := c.Lookup(p.ID, name)
				if !ok || got.ID != m.ID || got.Provider != p.ID {
					t.Errorf("%s/%s: found %s/%s, %t", p.ID, name, got.Provider, got.ID, ok)
					continue
				}
				r := got.Price.Base
				if prices := r.tokens(); slices.Min(prices[:]) <= 0 {
					t.Errorf("%s/%s: a class costs nothing: %+v", p.ID, name, r)
				}
			}
		}
	}
	if n < 300 || c.Len() != n {
		t.Errorf("%d entries, Len %d", n, c.Len())
	}
	for _, s := range file.Sources {
		if _, err := os.Stat("catalogue/" + s.LicenceFile); err != nil {
			t.Errorf("source %s: %v", s.Name, err)
		}
		if len(s.SHA256) != 64 || s.Licence == "" || s.Revision == "" {
			t.Errorf("source %+v is not told apart", s)
		}
	}
	if !strings.HasPrefix(c.Version(), file.AsOf+".") {
		t.Errorf("version %q", c.Version())
	}
}

func TestParseCatalogueRefuses(t *testing.T) {
	head := `{"format":1,"as_of":"2026-01-01","unit":"x","sources":[],"providers":[{"id":"p","models":[`
	model := func(rest string) string { return head + `{"id":"m","mode":"chat"` + rest + `}]}]}` }
	if _, err := ParseCatalogue([]byte(model(`,"input":1,"output":1`))); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	for name, data := range map[string]string{
		"not JSON":        `{`,
		"unknown field":   model(`,"input":1,"output":1,"colour":1`),
		"wrong format":    `{"format":2,"as_of":"2026-01-01"}`,
		"no date":         `{"format":1,"as_of":"today"}`,
		"no input price":  model(`,"output":1`),
		"no output price": model(`,"input":1`),
		"absurd price":    model(`,"input":1000000000001,"output":1`),
		"negative price":  model(`,"input":1,"output":-1`),
		"bad mode":        head + `{"id":"m","mode":"song","input":1,"output":1}]}]}`,
		"tier bound":      model(`,"input":1,"output":1,"tiers":[{"above":0}]`),
		"tiers unsorted":  model(`,"input":1,"output":1,"tiers":[{"above":5},{"above":5}]`),
		"two of a name":   head + `{"id":"m","mode":"chat","input":1,"output":1},{"id":"n","names":["M"],"mode":"chat","input":1,"output":1}]}]}`,
		"more after it":   model(`,"input":1,"output":1`) + `{}`,
	} {
		if _, err := ParseCatalogue([]byte(data)); !errors.Is(err, ErrCatalogue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOverrides(t *testing.T) {
	base := embeddedFor(t)
	o, err := ParseOverrides([]byte(`
models:
  - provider: openai
    id: gpt-4o-mini
    names: [house-model]
    max_output: 77
    usd_per_million: {input: 0.075, output: $1.50}
  - provider: self
    id: llama-local
    prefixes: [llama-local-]
    usd_per_million: {input: 0, output: 0}
  - provider: self
    id: embed
    mode: embedding
    encoding: cl100k_base
    usd_per_million: {input: "0.000000001"}
`))
	if err != nil {
		t.Fatal(err)
	}
	c := base.With(o)
	if c.Version() == base.Version() || !strings.HasPrefix(c.Version(), base.Version()+"+") {
		t.Errorf("version %q of %q", c.Version(), base.Version())
	}
	m, ok := c.Lookup("", "house-model")
	if !ok || m.Price.Base.Input != 75_000_000 || m.Price.Base.Output != 1_500_000_000 || m.Price.Base.CacheRead != 75_000_000 || m.MaxOutput != 77 {
		t.Errorf("%+v, %t", m, ok)
	}
	if m, ok := c.Lookup("openai", "gpt-4o-mini"); !ok || m.MaxOutput != 77 || m.Encoding != O200kBase {
		t.Errorf("%+v, %t", m, ok)
	}
	if m, ok := c.Lookup("", "llama-local-8b"); !ok || m.Price.Base != textRates(0, 0, 0, 0, 0, 0) || m.Rule.Family != "llama" {
		t.Errorf("a stated zero is a price: %+v, %t", m, ok)
	}
	if m, ok := c.Lookup("self", "embed"); !ok || m.Price.Base.Input != 1 || m.Encoding != CL100kBase {
		t.Errorf("%+v, %t", m, ok)
	}
	if m, ok := c.Lookup("", "gpt-4o"); !ok || m.Price.Version != c.Version() {
		t.Errorf("an entry of the base says version %q", m.Price.Version)
	}
	if m, _ := base.Lookup("", "gpt-4o-mini"); m.MaxOutput == 77 || m.Price.Version != base.Version() {
		t.Error("the base catalogue was changed")
	}
	if base.With(Overrides{}) != base {
		t.Error("no overrides, another catalogue")
	}
}

func TestParseOverridesRefuses(t *testing.T) {
	one := func(rest string) string { return "models:\n  - {provider: p, id: m, " + rest + "}\n" }
	if _, err := ParseOverrides([]byte(`{"models":[{"provider":"p","id":"m","usd_per_million":{"input":1,"output":2.5}}]}`)); err != nil {
		t.Fatalf("JSON: %v", err)
	}
	for name, data := range map[string]string{
		"unknown key":     one("usd_per_million: {input: 1, output: 1}, colour: red"),
		"unknown class":   one("usd_per_million: {input: 1, output: 1, sound: 1}"),
		"no provider":     "models: [{id: m, usd_per_million: {input: 1, output: 1}}]",
		"upper case":      "models: [{provider: P, id: m, usd_per_million: {input: 1, output: 1}}]",
		"no id":           "models: [{provider: p, usd_per_million: {input: 1, output: 1}}]",
		"no input":        one("usd_per_million: {output: 1}"),
		"no output":       one("usd_per_million: {input: 1}"),
		"negative":        one("usd_per_million: {input: -1, output: 1}"),
		"exponent":        one("usd_per_million: {input: 1e3, output: 1}"),
		"not a number":    one("usd_per_million: {input: .nan, output: 1}"),
		"words":           one("usd_per_million: {input: cheap, output: 1}"),
		"ten decimals":    one("usd_per_million: {input: 0.0000000001, output: 1}"),
		"above $1,000":    one("usd_per_million: {input: 1000.01, output: 1}"),
		"bad mode":        one("mode: song, usd_per_million: {input: 1, output: 1}"),
		"bad encoding":    one("encoding: latin1, usd_per_million: {input: 1, output: 1}"),
		"negative output": one("max_output: -1, usd_per_million: {input: 1, output: 1}"),
		"two of a name":   "models: [{provider: p, id: m, usd_per_million: {input: 1, output: 1}}, {provider: p, id: n, names: [M], usd_per_million: {input: 1, output: 1}}]",
		"a list":          "[]",
		"too long":        "#" + strings.Repeat("x", maxOverrideBytes),
	} {
		if _, err := ParseOverrides([]byte(data)); !errors.Is(err, ErrCatalogue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	now := time.Unix(0, 0)
	e := newEstimator(t, Config{Registerer: registry, Now: func() time.Time {
		now = now.Add(time.Second)
		return now
	}})
	if _, err := New(Config{Registerer: registry}); err != nil {
		t.Fatalf("a second estimator on one registry: %v", err)
	}
	for _, call := range []Call{
		{Model: "gpt-4o", Prompt: "x"}, {Model: "claude-sonnet-4-5", Prompt: "x"}, {Model: "gpt-4o", InputTokens: tokens(1)}, {Model: "nope", Prompt: "x"},
	} {
		_, _ = e.Estimate(call, anyDay) // the last is refused; the counters below tell
	}
	want := `
# HELP budgetd_estimator_estimates_total Estimates by how the input was counted: caller, tiktoken, rule, or refused.
# TYPE budgetd_estimator_estimates_total counter
budgetd_estimator_estimates_total{method="caller"} 1
budgetd_estimator_estimates_total{method="refused"} 1
budgetd_estimator_estimates_total{method="rule"} 1
budgetd_estimator_estimates_total{method="tiktoken"} 1
# HELP budgetd_estimator_unknown_models_total Look-ups of a model that the price catalogue does not know.
# TYPE budgetd_estimator_unknown_models_total counter
budgetd_estimator_unknown_models_total 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "budgetd_estimator_estimates_total", "budgetd_estimator_unknown_models_total"); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "budgetd_estimator_duration_seconds" {
			if h := family.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 4 || h.GetSampleSum() != 4 {
				t.Errorf("durations: %d samples, %g s; want 4 of a second each", h.GetSampleCount(), h.GetSampleSum())
			}
		}
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
