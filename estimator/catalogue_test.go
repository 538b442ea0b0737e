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
	"github.com/budgetd/budgetd/quota"
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
		{"", "gemini-2.5-pro-preview-tts"}, {"", "claude-opus-4-10"}, {"", "gpt-4o-mini-tts"}, {"", "gpt-5-image"},
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
		p, ok := c.Price(tt.model)
		if p.Base.Search = NoPrice; !ok || p.Base != tt.want {
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
				prices, units := r.tokens(), r.units()
				free := slices.Min(prices[:]) <= 0 && name != "amazon.titan-embed-text-v2:0" // its output is stated to be free
				if m.Mode == catalogue.ModeMedia && r.Input == NoPrice {
					free = slices.Max(units[:]) <= 0
				}
				if m.Mode == catalogue.ModeChat && r.Search < 0 {
					free = true
				}
				if free {
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
	head := `{"format":2,"as_of":"2026-01-01","unit":"x","sources":[],"providers":[{"id":"p","models":[`
	model := func(rest string) string { return head + `{"id":"m","mode":"chat",` + rest + `}]}]}` }
	prices := func(rest string) string { return model(`"prices":[{"rates":{"input":1,"output":1}` + rest + `}]`) }
	if _, err := ParseCatalogue([]byte(prices(`,"services":[{"name":"batch","rates":{"input":1}}]},{"from":"2026-02-01","rates":{"input":1,"output":1}`))); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	for name, data := range map[string]string{
		"not JSON":         `{`,
		"unknown field":    model(`"colour":1,"prices":[{"rates":{"input":1,"output":1}}]`),
		"wrong format":     `{"format":1,"as_of":"2026-01-01"}`,
		"no date":          `{"format":2,"as_of":"today"}`,
		"no price":         model(`"prices":[]`),
		"no input price":   model(`"prices":[{"rates":{"output":1}}]`),
		"no output price":  model(`"prices":[{"rates":{"input":1}}]`),
		"absurd price":     model(`"prices":[{"rates":{"input":1000000000001,"output":1}}]`),
		"absurd unit":      model(`"prices":[{"rates":{"input":1,"output":1,"image":100000000000001}}]`),
		"negative price":   model(`"prices":[{"rates":{"input":1,"output":-1}}]`),
		"unknown class":    model(`"prices":[{"rates":{"input":1,"output":1,"smell":1}}]`),
		"bad mode":         head + `{"id":"m","mode":"song","prices":[{"rates":{"input":1,"output":1}}]}]}]}`,
		"tokens half said": head + `{"id":"m","mode":"media","prices":[{"rates":{"image":1,"output":1}}]}]}]}`,
		"tier bound":       prices(`,"tiers":[{"above":0,"rates":{}}]`),
		"tiers unsorted":   prices(`,"tiers":[{"above":5,"rates":{}},{"above":5,"rates":{}}]`),
		"service unnamed":  prices(`,"services":[{"rates":{}}]`),
		"service twice":    prices(`,"services":[{"name":"a","rates":{}},{"name":"a","rates":{}}]`),
		"service's price":  prices(`,"services":[{"name":"a","rates":{"input":-1}}]`),
		"first has a date": model(`"prices":[{"from":"2026-01-01","rates":{"input":1,"output":1}}]`),
		"not a date":       prices(`},{"from":"later","rates":{"input":1,"output":1}`),
		"dates unsorted":   prices(`},{"from":"2026-01-02","rates":{"input":1,"output":1}},{"from":"2026-01-01","rates":{"input":1,"output":1}`),
		"bad regex":        model(`"rules":[{"regex":"("}],"prices":[{"rates":{"input":1,"output":1}}]`),
		"two in a rule":    model(`"rules":[{"contains":"a","ends_with":"b"}],"prices":[{"rates":{"input":1,"output":1}}]`),
		"two of a name":    head + `{"id":"m","mode":"chat","prices":[{"rates":{"input":1,"output":1}}]},{"id":"n","names":["M"],"mode":"chat","prices":[{"rates":{"input":1,"output":1}}]}]}]}`,
		"more after it":    prices("") + `{}`,
	} {
		if _, err := ParseCatalogue([]byte(data)); !errors.Is(err, ErrCatalogue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A price holds from its day on, and ids are matched by rules of every kind.
func TestPricesByDayAndRule(t *testing.T) {
	c, err := ParseCatalogue([]byte(`{"format":2,"as_of":"2026-03-01","unit":"x","sources":[],"providers":[{"id":"p","models":[
		{"id":"m","rules":[{"starts_with":"m-"},{"ends_with":"-em"},{"contains":"emm"},{"regex":"^mm[0-9]+$"}],"mode":"chat","prices":[
			{"rates":{"input":1,"output":10},"tiers":[{"above":100,"rates":{"input":3}}],"services":[{"name":"flex","rates":{"output":5}},{"name":"priority","rates":{"input":7},"tiers":[{"above":100,"rates":{"output":40}},{"above":200,"rates":{"input":50}}]}]},
			{"from":"2026-03-01","rates":{"input":2,"output":20}},
			{"from":"2026-04-01","rates":{"input":4,"output":40}}]},
		{"id":"longer","rules":[{"contains":"emmm"}],"mode":"chat","prices":[{"rates":{"input":9,"output":9}}]}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for day, want := range map[string]PerMillion{"2026-02-28T23:59:59Z": 1, "2026-03-01T00:00:00Z": 2, "2026-03-31T23:59:59Z": 2, "2030-01-01T00:00:00Z": 4} {
		at, err := time.Parse(time.RFC3339, day)
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := c.LookupAt("p", "m", at); !ok || m.Price.Base.Input != want {
			t.Errorf("%s: %d, %t; want %d", day, m.Price.Base.Input, ok, want)
		}
	}
	if m, _ := c.Lookup("p", "m"); m.Price.Base.Input != 2 {
		t.Errorf("on the catalogue's day: %d, want 2", m.Price.Base.Input)
	}
	for id, want := range map[string]string{"m-1": "m", "x-em": "m", "xemmx": "m", "xemmmx": "longer", "mm12": "m", "mm1x": "", "em-x": ""} {
		if m, _ := c.Lookup("p", id); m.ID != want {
			t.Errorf("%q is %q, want %q", id, m.ID, want)
		}
	}
	if _, ok := c.Lookup("", "xemmx"); ok {
		t.Error("a provider that was not named was asked for a part of an id")
	}
	m, _ := c.LookupAt("p", "m", time.Unix(0, 0))
	for _, tt := range []struct {
		tier            string
		input           quota.Tokens
		wantIn, wantOut PerMillion
	}{
		{"", 100, 1, 10}, {"", 101, 3, 10}, {"flex", 100, 1, 5}, {"flex", 101, 3, 5},
		{"priority", 100, 7, 10}, {"priority", 101, 7, 40}, {"priority", 201, 50, 40},
	} {
		if r := m.Price.RatesServed(tt.input, tt.tier, ""); r.Input != tt.wantIn || r.Output != tt.wantOut {
			t.Errorf("%q with %d tokens: %d and %d, want %d and %d", tt.tier, tt.input, r.Input, r.Output, tt.wantIn, tt.wantOut)
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
    usd_each: {search: 0.01, second: 0.0001}
    tiers: [{above: 1000, usd_per_million: {input: 1}}]
    services: {batch: {usd_per_million: {input: 0.05}}}
    rules: [{regex: "^house-[0-9]$"}]
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
	if r := m.Price.RatesServed(1001, "batch", ""); r.Input != usd || m.Price.Base.Search != PerThousand(10*usd) || m.Price.Base.Second != PerHour(usd)*36/100 {
		t.Errorf("%+v of %+v", r, m.Price)
	}
	if m, ok := c.Lookup("openai", "house-7"); !ok || m.MaxOutput != 77 {
		t.Errorf("%+v, %t", m, ok)
	}
	if m, ok := c.Lookup("openai", "gpt-4o-mini"); !ok || m.MaxOutput != 77 || m.Encoding != O200kBase {
		t.Errorf("%+v, %t", m, ok)
	}
	if m, ok := c.Lookup("", "llama-local-8b"); !ok || m.Price.Base.Input != 0 || m.Price.Base.OutputAudio != 0 || m.Rule.Family != "llama" {
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
		"unknown unit":    one("usd_per_million: {input: 1, output: 1}, usd_each: {mile: 1}"),
		"above $100":      one("usd_per_million: {input: 1, output: 1}, usd_each: {page: 100.01}"),
		"bad service":     one("usd_per_million: {input: 1, output: 1}, services: {Batch: {usd_per_million: {input: 1}}}"),
		"bad tier":        one("usd_per_million: {input: 1, output: 1}, tiers: [{above: 0, usd_per_million: {input: 1}}]"),
		"bad rule":        one("usd_per_million: {input: 1, output: 1}, rules: [{regex: \"(\"}]"),
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
