package estimator

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/budgetd/budgetd/estimator/catalogue"
	"github.com/budgetd/budgetd/estimator/family"
	"github.com/budgetd/budgetd/quota"
)

// Mode is what a model does with its input.
type Mode string

// The modes of a model.
const (
	ModeChat       Mode = catalogue.ModeChat
	ModeCompletion Mode = catalogue.ModeCompletion
	ModeEmbedding  Mode = catalogue.ModeEmbedding
	ModeMedia      Mode = catalogue.ModeMedia
)

// Model is what the catalogue knows of one model.
type Model struct {
	Provider      string
	ID            string // canonical
	Mode          Mode
	ContextWindow quota.Tokens // 0: not known
	MaxOutput     quota.Tokens // ceiling of one choice, reasoning included; 0: not known
	Encoding      Encoding     // "": no public encoding; then Rule
	Rule          family.Rule  // used when Encoding is ""
	Price         Price

	later []laterPrice // in the order in which they begin
}

// laterPrice is what a model costs from an instant on.
type laterPrice struct {
	from  time.Time
	price Price
}

// at is the model with the price of an instant.
func (m *Model) at(instant time.Time) Model {
	out := *m
	for _, later := range m.later {
		if !instant.Before(later.from) {
			out.Price = later.price
		}
	}
	out.later = nil
	return out
}

// prices calls f with every price of the model.
func (m *Model) prices(f func(*Price)) {
	f(&m.Price)
	for i := range m.later {
		f(&m.later[i].price)
	}
}

// Catalogue maps model ids to prices. It is immutable: With makes another.
type Catalogue struct {
	version   string
	asOf      time.Time   // the day whose prices Lookup tells
	search    PerThousand // the dearest of all searches
	providers []*provider
	byName    map[string]*provider // by id and alias
}

type provider struct {
	id       string
	maker    bool
	fallback []string
	names    map[string]*Model
	prefixes []prefixRule // longest first
	rules    []matchRule  // in the order of the file
}

type prefixRule struct {
	prefix string
	model  *Model
}

// matchRule is one of the other ways to match ids.
type matchRule struct {
	of    catalogue.Rule
	regex *regexp.Regexp // nil where the rule has none
	model *Model
}

func (r *matchRule) matches(id string) bool {
	switch {
	case r.regex != nil:
		return r.regex.MatchString(id)
	case r.of.EndsWith != "":
		return strings.HasSuffix(id, r.of.EndsWith)
	}
	rest := strings.Replace(id, r.of.Contains, "", 1)
	return rest != id && !namesOther(rest)
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
	asOf, err := time.Parse(time.DateOnly, file.AsOf)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCatalogue, err)
	}
	c := &Catalogue{version: file.Version(data), asOf: asOf, byName: map[string]*provider{}}
	for _, from := range file.Providers {
		p := &provider{id: from.ID, maker: from.Maker, fallback: from.Fallback, names: map[string]*Model{}}
		c.providers = append(c.providers, p)
		for _, name := range append([]string{from.ID}, from.Aliases...) {
			c.byName[name] = p
		}
		for _, m := range from.Models {
			model, err := newModel(from.ID, m, c.version)
			if err == nil {
				err = p.add(m, model)
			}
			if err != nil {
				return nil, fmt.Errorf("%w: provider %q, model %q: %w", ErrCatalogue, p.id, m.ID, err)
			}
		}
	}
	c.priceSearches()
	return c, nil
}

// priceSearches gives the models that write, and have no price of a search, the
// dearest of their provider, else that of the whole catalogue: a search that the
// provider ran is never free because a source forgot it.
func (c *Catalogue) priceSearches() {
	dearest := map[*provider]PerThousand{}
	for _, p := range c.providers {
		for _, m := range p.names {
			if m.Mode == ModeMedia { // rankings, which are no searches of the web
				continue
			}
			m.prices(func(price *Price) {
				dearest[p] = max(dearest[p], price.Base.Search)
				c.search = max(c.search, price.Base.Search)
			})
		}
	}
	for _, p := range c.providers {
		otherwise := dearest[p]
		if otherwise == 0 {
			otherwise = c.search
		}
		for _, m := range p.names {
			if m.Mode == ModeChat {
				m.prices(func(price *Price) { price.fillSearch(otherwise) })
			}
		}
	}
}

// fillSearch states the price of a search where there is none.
func (p *Price) fillSearch(otherwise PerThousand) {
	fill := func(base *Rates, tiers []Tier) {
		if base.Search == NoPrice {
			base.Search = otherwise
		}
		for i := range tiers {
			if tiers[i].Rates.Search == NoPrice {
				tiers[i].Rates.Search = otherwise
			}
		}
	}
	fill(&p.Base, p.Tiers)
	for i := range p.Services {
		fill(&p.Services[i].Base, p.Services[i].Tiers)
	}
}

func newModel(provider string, m catalogue.Model, version string) (*Model, error) {
	model := &Model{
		Provider:      provider,
		ID:            m.ID,
		Mode:          Mode(m.Mode),
		ContextWindow: quota.Tokens(m.ContextWindow),
		MaxOutput:     quota.Tokens(m.MaxOutput),
		Encoding:      encodingFor(m.ID),
		Rule:          family.Of(m.ID),
	}
	for i, from := range m.Prices {
		price := newPrice(from)
		price.Provider, price.Model, price.Version = provider, m.ID, version
		if i == 0 {
			model.Price = price
			continue
		}
		day, err := time.Parse(time.DateOnly, from.From)
		if err != nil {
			return nil, err
		}
		model.later = append(model.later, laterPrice{day, price})
	}
	return model, nil
}

// newPrice completes the prices of a file. What a tier does not state is as
// below its bound; what a service does not state is as usual.
func newPrice(from catalogue.Price) Price {
	price := Price{Base: complete(from.Rates)}
	for _, tier := range from.Tiers {
		price.Tiers = append(price.Tiers, Tier{Above: quota.Tokens(tier.Above), Rates: complete(from.Rates, tier.Rates)})
	}
	for _, s := range from.Services {
		service := Service{Name: s.Name, Base: complete(from.Rates, s.Rates)}
		bounds := map[int64]bool{}
		for _, tier := range slices.Concat(from.Tiers, s.Tiers) {
			if bounds[tier.Above] {
				continue
			}
			bounds[tier.Above] = true
			above := []catalogue.Rates{from.Rates, s.Rates}
			for _, t := range from.Tiers {
				if t.Above <= tier.Above {
					above = append(above, t.Rates)
				}
			}
			for _, t := range s.Tiers {
				if t.Above <= tier.Above {
					above = append(above, t.Rates)
				}
			}
			service.Tiers = append(service.Tiers, Tier{Above: quota.Tokens(tier.Above), Rates: complete(above...)})
		}
		slices.SortFunc(service.Tiers, func(a, b Tier) int { return cmp.Compare(a.Above, b.Above) })
		price.Services = append(price.Services, service)
	}
	return price
}

// complete lays sets of prices over each other, the later over the earlier, and
// fills the classes that have no price then, as [Rates] documents.
func complete(sets ...catalogue.Rates) Rates {
	var stated StatedRates
	for _, set := range sets {
		for name, price := range set {
			stated.State(name, price)
		}
	}
	return stated.Complete()
}

// add enters a model under its names and rules, in place of what was there.
func (p *provider) add(m catalogue.Model, model *Model) error {
	for _, name := range append([]string{m.ID}, m.Names...) {
		p.names[strings.ToLower(name)] = model
	}
	for _, r := range m.Rules {
		if r.StartsWith != "" {
			prefix := strings.ToLower(r.StartsWith)
			p.prefixes = slices.DeleteFunc(p.prefixes, func(r prefixRule) bool { return r.prefix == prefix })
			p.prefixes = append(p.prefixes, prefixRule{prefix, model})
			continue
		}
		added := matchRule{of: catalogue.Rule{EndsWith: strings.ToLower(r.EndsWith), Contains: strings.ToLower(r.Contains)}, model: model}
		if r.Regex != "" {
			var err error
			if added.regex, err = regexp.Compile(r.Regex); err != nil {
				return err
			}
		}
		p.rules = append(p.rules, added)
	}
	slices.SortStableFunc(p.rules, func(a, b matchRule) int { // the stricter first
		return cmp.Compare(len(b.of.EndsWith+b.of.Contains), len(a.of.EndsWith+a.of.Contains))
	})
	slices.SortFunc(p.prefixes, func(a, b prefixRule) int {
		return cmp.Or(cmp.Compare(len(b.prefix), len(a.prefix)), strings.Compare(a.prefix, b.prefix))
	})
	return nil
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

// Lookup is LookupAt on the day of the catalogue.
func (c *Catalogue) Lookup(provider, model string) (Model, bool) {
	return c.LookupAt(provider, model, c.asOf)
}

// Price returns the price of a model whatever its provider; see Lookup.
func (c *Catalogue) Price(model string) (Price, bool) {
	m, ok := c.Lookup("", model)
	return m.Price, ok
}

// LookupAt finds a model by the id that a caller uses, with its price at an
// instant. Case does not matter. A provider's own names come first; then the id
// without a date or "latest" at its end (gpt-4o-mini-2024-07-18); then the
// longest rule of a beginning. A provider that lists no such model may refer to
// the model's maker (Azure to OpenAI).
//
// A provider that is named is asked by its rules of other parts too, the longest
// first. Without one, the makers are asked in the order of the file;
// then "openai/gpt-4o" names it by its first part; then the hosts are asked, of
// which the dearest counts. A provider that the catalogue does not have knows no model.
func (c *Catalogue) LookupAt(providerName, model string, at time.Time) (Model, bool) {
	if m := c.lookup(providerName, model); m != nil {
		return m.at(at), true
	}
	return Model{}, false
}

func (c *Catalogue) lookup(providerName, model string) *Model {
	id := strings.ToLower(strings.TrimPrefix(model, "models/")) // Gemini's resource names
	if id == "" {
		return nil
	}
	if providerName != "" {
		p := c.byName[strings.ToLower(providerName)]
		if p == nil {
			return nil
		}
		if m := c.from(p, id); m != nil {
			return m
		}
		// "openai/gpt-4o" beside provider "openai".
		if head, rest, ok := strings.Cut(id, "/"); ok && c.byName[head] == p {
			return c.from(p, rest)
		}
		return nil
	}
	for _, p := range c.providers {
		if p.maker {
			if m := p.find(id); m != nil {
				return m
			}
		}
	}
	if head, rest, ok := strings.Cut(id, "/"); ok && c.byName[head] != nil {
		if m := c.from(c.byName[head], rest); m != nil {
			return m
		}
	}
	var found *Model
	for _, p := range c.providers {
		m := p.find(id)
		if m != nil && (found == nil || m.Price.Base.Input+m.Price.Base.Output > found.Price.Base.Input+found.Price.Base.Output) {
			found = m
		}
	}
	return found
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
	for i := range p.rules {
		if r := &p.rules[i]; r.matches(id) {
			return r.model
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
	return !namesOther(rest)
}

func namesOther(rest string) bool {
	return slices.ContainsFunc(otherPrice, func(word string) bool { return strings.Contains(rest, word) })
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
