package estimator

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/budgetd/budgetd/estimator/catalogue"
	"github.com/budgetd/budgetd/quota"
)

// Mode is what a model does with its input.
type Mode string

// The modes of a model.
const (
	ModeChat       Mode = catalogue.ModeChat
	ModeCompletion Mode = catalogue.ModeCompletion
	ModeEmbedding  Mode = catalogue.ModeEmbedding
)

// Model is what the catalogue knows of one model.
type Model struct {
	Provider      string
	ID            string // canonical
	Mode          Mode
	ContextWindow quota.Tokens // 0: not known
	MaxOutput     quota.Tokens // ceiling of one choice, reasoning included; 0: not known
	Encoding      Encoding     // "": no public encoding; then Rule
	Rule          Rule         // used when Encoding is ""
	Price         Price
}

// Catalogue maps model ids to prices. It is immutable: With makes another.
type Catalogue struct {
	version   string
	providers []*provider
	byName    map[string]*provider // by id and alias
}

type provider struct {
	id       string
	maker    bool
	fallback []string
	names    map[string]*Model
	prefixes []prefixRule // longest first
}

type prefixRule struct {
	prefix string
	model  *Model
}

var embedded = sync.OnceValues(func() (*Catalogue, error) { return ParseCatalogue(catalogue.Embedded()) })

// EmbeddedCatalogue returns the catalogue of the binary, parsed on first use
// and shared.
func EmbeddedCatalogue() (*Catalogue, error) { return embedded() }

// ParseCatalogue reads a catalogue file (package catalogue has its layout). It
// fails with an error that wraps [ErrCatalogue] and names the entry at fault.
func ParseCatalogue(data []byte) (*Catalogue, error) {
	file, err := catalogue.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCatalogue, err)
	}
	c := &Catalogue{version: file.Version(data), byName: map[string]*provider{}}
	for _, from := range file.Providers {
		p := &provider{id: from.ID, maker: from.Maker, fallback: from.Fallback, names: map[string]*Model{}}
		c.providers = append(c.providers, p)
		for _, name := range append([]string{from.ID}, from.Aliases...) {
			c.byName[name] = p
		}
		for _, m := range from.Models {
			p.add(m, newModel(from.ID, m, c.version))
		}
	}
	return c, nil
}

func newModel(provider string, m catalogue.Model, version string) *Model {
	model := &Model{
		Provider:      provider,
		ID:            m.ID,
		Mode:          Mode(m.Mode),
		ContextWindow: quota.Tokens(m.ContextWindow),
		MaxOutput:     quota.Tokens(m.MaxOutput),
		Encoding:      encodingFor(m.ID),
		Rule:          RuleFor(m.ID),
		Price:         Price{Provider: provider, Model: m.ID, Version: version, Base: complete(m.Rates)},
	}
	for _, tier := range m.Tiers {
		// A class that the tier does not state keeps its base price.
		rates := m.Rates
		for _, class := range []struct{ to, from **int64 }{
			{&rates.Input, &tier.Input}, {&rates.CacheRead, &tier.CacheRead},
			{&rates.CacheWrite, &tier.CacheWrite}, {&rates.CacheWrite1h, &tier.CacheWrite1h},
			{&rates.Output, &tier.Output}, {&rates.Reasoning, &tier.Reasoning},
		} {
			if *class.from != nil {
				*class.to = *class.from
			}
		}
		model.Price.Tiers = append(model.Price.Tiers, Tier{Above: quota.Tokens(tier.Above), Rates: complete(rates)})
	}
	return model
}

// complete fills the classes that have no price, as [Rates] documents.
func complete(r catalogue.Rates) Rates {
	price := func(p *int64) *PerMillion { return (*PerMillion)(p) }
	return StatedRates{Tokens: [numberOfClasses]*PerMillion{
		0: price(r.Input), 4: price(r.CacheRead), 7: price(r.CacheWrite), 8: price(r.CacheWrite1h), 9: price(r.Output), 13: price(r.Reasoning),
	}}.Complete()
}

// add enters a model under its names and prefixes, in place of what was there.
func (p *provider) add(m catalogue.Model, model *Model) {
	for _, name := range append([]string{m.ID}, m.Names...) {
		p.names[strings.ToLower(name)] = model
	}
	for _, prefix := range m.Prefixes {
		prefix = strings.ToLower(prefix)
		p.prefixes = slices.DeleteFunc(p.prefixes, func(r prefixRule) bool { return r.prefix == prefix })
		p.prefixes = append(p.prefixes, prefixRule{prefix, model})
	}
	slices.SortFunc(p.prefixes, func(a, b prefixRule) int {
		return cmp.Or(cmp.Compare(len(b.prefix), len(a.prefix)), strings.Compare(a.prefix, b.prefix))
	})
}

// Version names the catalogue: its day and a hash of its content, such as
// "2026-12-01.0123456789ab"; with overrides, "+" and a hash of those.
func (c *Catalogue) Version() string { return c.version }

// Len is how many models the catalogue has.
func (c *Catalogue) Len() int {
	models := map[*Model]bool{}
	for _, p := range c.providers {
		for _, m := range p.names {
			models[m] = true
		}
	}
	return len(models)
}

// Price returns the price of a model whatever its provider; see Lookup.
func (c *Catalogue) Price(model string) (Price, bool) {
	m, ok := c.Lookup("", model)
	return m.Price, ok
}

// Lookup finds a model by the id that a caller uses. Case does not matter. A
// provider's own names come first; then the id without a date or "latest" at
// its end (gpt-4o-mini-2024-07-18); then the longest prefix rule. A provider
// that lists no such model may refer to the model's maker (Azure to OpenAI).
//
// Without a provider, "openai/gpt-4o" names it by its first part; else the
// makers are asked in the order of the file, then the hosts, of which the
// dearest counts. A provider that the catalogue does not have knows no model.
func (c *Catalogue) Lookup(providerName, model string) (Model, bool) {
	id := strings.ToLower(strings.TrimPrefix(model, "models/")) // Gemini's resource names
	if id == "" {
		return Model{}, false
	}
	if providerName != "" {
		p := c.byName[strings.ToLower(providerName)]
		if p == nil {
			return Model{}, false
		}
		if m := c.from(p, id); m != nil {
			return *m, true
		}
		// "openai/gpt-4o" beside provider "openai".
		if head, rest, ok := strings.Cut(id, "/"); ok && c.byName[head] == p {
			if m := c.from(p, rest); m != nil {
				return *m, true
			}
		}
		return Model{}, false
	}
	var found *Model
	for _, p := range c.providers {
		if m := p.find(id); m != nil {
			if p.maker {
				return *m, true
			}
			if found == nil || m.Price.Base.Input+m.Price.Base.Output > found.Price.Base.Input+found.Price.Base.Output {
				found = m
			}
		}
	}
	if found != nil {
		return *found, true
	}
	if head, rest, ok := strings.Cut(id, "/"); ok && c.byName[head] != nil {
		if m := c.from(c.byName[head], rest); m != nil {
			return *m, true
		}
	}
	return Model{}, false
}

// from asks a provider, then those it refers to.
func (c *Catalogue) from(p *provider, id string) *Model {
	if m := p.find(id); m != nil {
		return m
	}
	for _, name := range p.fallback {
		if m := c.byName[name].find(id); m != nil {
			return m
		}
	}
	return nil
}

// dated matches what providers append to an id for a snapshot of the same
// model: -2024-07-18, -20240718, @20240718, -001, -latest.
var dated = regexp.MustCompile(`(?:-\d{4}-\d{2}-\d{2}|[-@]\d{8}|-\d{3}|[-@]latest)$`)

func (p *provider) find(id string) *Model {
	if m := p.names[id]; m != nil {
		return m
	}
	if m := p.names[dated.ReplaceAllString(id, "")]; m != nil {
		return m
	}
	for _, rule := range p.prefixes {
		if rest, ok := strings.CutPrefix(id, rule.prefix); ok && continues(rule.prefix, rest) {
			return rule.model
		}
	}
	return nil
}

// otherPrice are words in the rest of an id that mean another model at another
// price, whatever prefix it shares.
var otherPrice = []string{"audio", "tts", "realtime", "transcribe", "image", "live", "embed", "search", "research"}

// continues says whether the rest of an id may belong to a prefix rule: a
// number is not cut in two (opus-4-1 is not opus-4-10) unless the prefix ends
// in a year (sonnet-4-2025), and the rest names no other kind of model.
func continues(prefix, rest string) bool {
	digit := func(b byte) bool { return b >= '0' && b <= '9' }
	if rest != "" && digit(rest[0]) && digit(prefix[len(prefix)-1]) {
		trailing := len(prefix) - len(strings.TrimRight(prefix, "0123456789"))
		if trailing < 4 {
			return false
		}
	}
	return !slices.ContainsFunc(otherPrice, func(word string) bool { return strings.Contains(rest, word) })
}

// encodingFor returns the public encoding of a model, as openai/tiktoken's
// model list assigns them (tiktoken/model.py), or "".
func encodingFor(model string) Encoding {
	id := strings.ToLower(model)
	id = strings.TrimPrefix(id, "openai/")
	id = strings.TrimPrefix(id, "accounts/fireworks/models/")
	id = strings.TrimPrefix(id, "ft:") // fine-tuned: as its base
	for _, e := range []struct {
		prefix   string
		encoding Encoding
	}{
		{"gpt-oss", O200kHarmony},
		{"gpt-4o", O200kBase}, {"chatgpt-4o", O200kBase}, {"gpt-4.1", O200kBase}, {"gpt-4.5", O200kBase},
		{"gpt-5", O200kBase}, {"gpt-chat-latest", O200kBase}, {"codex-mini", O200kBase}, {"computer-use", O200kBase},
		{"o1", O200kBase}, {"o3", O200kBase}, {"o4", O200kBase},
		{"gpt-4", CL100kBase}, {"gpt-3.5", CL100kBase}, {"gpt-35", CL100kBase}, {"text-embedding", CL100kBase},
		{"davinci-002", CL100kBase}, {"babbage-002", CL100kBase},
		{"text-davinci-002", P50kBase}, {"text-davinci-003", P50kBase},
		{"text-davinci-001", R50kBase}, {"text-curie-001", R50kBase}, {"text-babbage-001", R50kBase}, {"text-ada-001", R50kBase},
	} {
		if strings.HasPrefix(id, e.prefix) {
			return e.encoding
		}
	}
	switch id {
	case "davinci", "curie", "babbage", "ada":
		return R50kBase
	}
	return ""
}
