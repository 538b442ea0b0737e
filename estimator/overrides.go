package estimator

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/budgetd/budgetd/estimator/catalogue"
	"github.com/budgetd/budgetd/quota"
)

// Overrides are models that an operator adds to a catalogue, or prices
// otherwise. A file of them is YAML, or JSON, which is YAML too:
//
//	models:
//	  - provider: openai          # need not be in the catalogue
//	    id: my-model              # replaces an entry of this name
//	    names: [my-model-v2]      # optional; prefixes likewise
//	    rules: [{regex: "^my-.*$"}] # optional; or starts_with, ends_with, contains
//	    mode: chat                # or completion, embedding, media; chat unless stated
//	    max_output: 4096          # tokens, optional; context_window likewise
//	    encoding: o200k_base      # optional; else by the model's name
//	    usd_per_million: {input: 0.075, output: 0.30, cache_read: 0.0375}
//	    usd_each: {search: 0.01}  # image, second, page, search, request
//	    tiers:                    # optional: the whole call, above so many input tokens
//	      - {above: 200000, usd_per_million: {input: 0.15}}
//	    services:                 # optional: by service tier or speed
//	      batch: {usd_per_million: {input: 0.0375, output: 0.15}}
//
// Prices are dollars, per million tokens or each, with at most nine decimals, and
// within the bounds of [MaxPerMillion], [MaxPerThousand] and [MaxPerHour]; a
// stated 0 is a price, an unstated class falls back as [Rates] documents. Unknown
// keys are refused.
type Overrides struct {
	models []override
	hash   string
}

type override struct {
	Provider      string         `yaml:"provider"`
	ID            string         `yaml:"id"`
	Names         []string       `yaml:"names"`
	Prefixes      []string       `yaml:"prefixes"`
	Mode          string         `yaml:"mode"`
	ContextWindow int64          `yaml:"context_window"`
	MaxOutput     int64          `yaml:"max_output"`
	Encoding      Encoding       `yaml:"encoding"`
	Rules         []overrideRule `yaml:"rules"`

	Prices overridePrices `yaml:",inline"`

	Tiers    []overrideTier             `yaml:"tiers"`
	Services map[string]overrideService `yaml:"services"`
}

type overrideRule struct {
	StartsWith string `yaml:"starts_with"`
	EndsWith   string `yaml:"ends_with"`
	Contains   string `yaml:"contains"`
	Regex      string `yaml:"regex"`
}

type overridePrices struct {
	USDPerMillion map[string]dollars `yaml:"usd_per_million"`
	USDEach       map[string]dollars `yaml:"usd_each"`
}

type overrideTier struct {
	Above  int64          `yaml:"above"`
	Prices overridePrices `yaml:",inline"`
}

type overrideService struct {
	Prices overridePrices `yaml:",inline"`
	Tiers  []overrideTier `yaml:"tiers"`
}

// rates turns dollars into the catalogue's units.
func (p overridePrices) rates() (catalogue.Rates, error) {
	rates := make(catalogue.Rates, len(p.USDPerMillion)+len(p.USDEach))
	for name, price := range p.USDPerMillion {
		if !slices.Contains(classNames[:], name) {
			return nil, fmt.Errorf("usd_per_million: %.64q is no class of tokens; write %s", name, strings.Join(classNames[:], ", "))
		}
		rates[name] = int64(price)
	}
	for name, price := range p.USDEach {
		most, times := int64(MaxPerThousand), int64(1_000)
		if name == unitNames[unitSecond] {
			most, times = int64(MaxPerHour), 3_600
		}
		switch {
		case !slices.Contains(unitNames[:], name):
			return nil, fmt.Errorf("usd_each: %.64q is no unit; write %s", name, strings.Join(unitNames[:], ", "))
		case int64(price) > most/times:
			return nil, fmt.Errorf("usd_each: %s: %s is above %s", name, quota.NanoUSD(price), quota.NanoUSD(most/times))
		}
		rates[name] = int64(price) * times
	}
	return rates, nil
}

func tiersOf(tiers []overrideTier) ([]catalogue.Tier, error) {
	var out []catalogue.Tier
	for i, tier := range tiers {
		rates, err := tier.Prices.rates()
		if err != nil {
			return nil, fmt.Errorf("tiers[%d]: %w", i, err)
		}
		out = append(out, catalogue.Tier{Above: tier.Above, Rates: rates})
	}
	return out, nil
}

// dollars is a decimal number of dollars, kept exactly as nano-USD.
type dollars int64

// UnmarshalYAML reads a decimal such as 0.075, "0.075" or $0.075.
func (d *dollars) UnmarshalYAML(text []byte) error {
	n, err := parseDollars(string(text))
	*d = dollars(n)
	return err
}

// parseDollars reads plain decimal dollars, with or without "$", exactly.
func parseDollars(text string) (int64, error) {
	number := strings.TrimPrefix(strings.Trim(strings.TrimSpace(text), `"'`), "$")
	digits := strings.Trim(number, "0123456789")
	if number == "" || len(number) > 24 || (digits != "" && digits != ".") || strings.HasPrefix(number, ".") || strings.HasSuffix(number, ".") {
		return 0, fmt.Errorf("%.40q is not a price in dollars, such as 0.075", text)
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, fmt.Errorf("%.40q is not a price in dollars, such as 0.075", text)
	}
	r.Mul(r, new(big.Rat).SetInt64(int64(quota.OneUSD)))
	if !r.IsInt() {
		return 0, fmt.Errorf("%.40q has more than nine decimals", text)
	}
	if !r.Num().IsInt64() || r.Num().Int64() > int64(MaxPerMillion) {
		return 0, fmt.Errorf("%.40q is above $1,000", text)
	}
	return r.Num().Int64(), nil
}

// maxOverrideBytes bounds an override file.
const maxOverrideBytes = 4 << 20

// ParseOverrides reads an override file. It fails with an error that wraps
// [ErrCatalogue] and names the key at fault.
func ParseOverrides(data []byte) (Overrides, error) {
	if len(data) > maxOverrideBytes {
		return Overrides{}, fmt.Errorf("%w: the override file is over %d bytes", ErrCatalogue, maxOverrideBytes)
	}
	var file struct {
		Models []override `yaml:"models"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := decoder.Decode(&file); err != nil {
		return Overrides{}, fmt.Errorf("%w: overrides: %w", ErrCatalogue, err)
	}
	seen := map[string]bool{}
	for i := range file.Models {
		o := &file.Models[i]
		fail := func(err error) (Overrides, error) {
			return Overrides{}, fmt.Errorf("%w: overrides: models[%d] %.64q: %w", ErrCatalogue, i, o.ID, err)
		}
		if o.Provider == "" || o.Provider != strings.ToLower(o.Provider) || len(o.Provider) > 64 {
			return fail(fmt.Errorf("provider: %.64q must be 1 to 64 bytes in lower case", o.Provider))
		}
		if o.Mode == "" {
			o.Mode = catalogue.ModeChat
		}
		if o.Encoding != "" && !o.Encoding.Known() {
			return fail(fmt.Errorf("encoding: %.64q is not an embedded encoding", string(o.Encoding)))
		}
		m, err := o.model()
		if err == nil {
			err = m.Check()
		}
		if err != nil {
			return fail(err)
		}
		for _, name := range append([]string{o.ID}, o.Names...) {
			key := o.Provider + "\x00" + strings.ToLower(name)
			if seen[key] {
				return fail(fmt.Errorf("names: %.64q is stated twice", name))
			}
			seen[key] = true
		}
	}
	canonical, err := json.Marshal(file.Models)
	if err != nil {
		return Overrides{}, fmt.Errorf("%w: overrides: %w", ErrCatalogue, err)
	}
	sum := sha256.Sum256(canonical)
	return Overrides{models: file.Models, hash: hex.EncodeToString(sum[:])[:12]}, nil
}

// model is the override as an entry of a catalogue's file, unchecked.
func (o override) model() (catalogue.Model, error) {
	m := catalogue.Model{
		ID: o.ID, Names: o.Names, Mode: o.Mode, ContextWindow: o.ContextWindow, MaxOutput: o.MaxOutput,
		Prices: make([]catalogue.Price, 1),
	}
	for _, prefix := range o.Prefixes {
		m.Rules = append(m.Rules, catalogue.Rule{StartsWith: prefix})
	}
	for _, r := range o.Rules {
		m.Rules = append(m.Rules, catalogue.Rule(r))
	}
	price, err := &m.Prices[0], error(nil)
	if price.Rates, err = o.Prices.rates(); err != nil {
		return m, err
	}
	if price.Tiers, err = tiersOf(o.Tiers); err != nil {
		return m, err
	}
	for _, name := range slices.Sorted(maps.Keys(o.Services)) {
		service := catalogue.Service{Name: name}
		if service.Rates, err = o.Services[name].Prices.rates(); err == nil {
			service.Tiers, err = tiersOf(o.Services[name].Tiers)
		}
		if err != nil {
			return m, fmt.Errorf("services: %.64q: %w", name, err)
		}
		price.Services = append(price.Services, service)
	}
	return m, nil
}

// With returns a catalogue in which the overrides come before c's own entries.
// A provider that c does not have is added, as a maker. Without overrides it
// is c.
func (c *Catalogue) With(o Overrides) *Catalogue {
	if len(o.models) == 0 {
		return c
	}
	out := &Catalogue{version: c.version + "+" + o.hash, asOf: c.asOf, search: c.search, byName: map[string]*provider{}}
	copies := map[*provider]*provider{}
	for _, p := range c.providers {
		names := make(map[string]*Model, len(p.names))
		// The entries say which version priced them, so they are copied too.
		models := map[*Model]*Model{}
		copied := func(m *Model) *Model {
			if models[m] == nil {
				again := *m
				again.later = slices.Clone(m.later)
				again.prices(func(p *Price) { p.Version = out.version })
				models[m] = &again
			}
			return models[m]
		}
		for name, m := range p.names {
			names[name] = copied(m)
		}
		again := &provider{id: p.id, maker: p.maker, fallback: p.fallback, names: names}
		for _, r := range p.prefixes {
			again.prefixes = append(again.prefixes, prefixRule{r.prefix, copied(r.model)})
		}
		for _, r := range p.rules {
			again.rules = append(again.rules, matchRule{r.of, r.regex, copied(r.model)})
		}
		copies[p] = again
		out.providers = append(out.providers, again)
	}
	for name, p := range c.byName {
		out.byName[name] = copies[p]
	}
	for _, o := range o.models {
		p := out.byName[o.Provider]
		if p == nil {
			p = &provider{id: o.Provider, maker: true, names: map[string]*Model{}}
			out.providers = append(out.providers, p)
			out.byName[o.Provider] = p
		}
		// Neither fails: ParseOverrides has checked the model.
		m, _ := o.model()
		model, _ := newModel(p.id, m, out.version)
		if o.Encoding != "" {
			model.Encoding = o.Encoding
		}
		if model.Mode == ModeChat {
			model.Price.fillSearch(c.search)
		}
		_ = p.add(m, model)
	}
	return out
}
