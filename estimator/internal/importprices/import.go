package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/budgetd/budgetd/estimator/catalogue"
)

// The parts of genai-prices' layout that are read.
type genaiProvider struct {
	ID     string       `json:"id"`
	Models []genaiModel `json:"models"`
}

type genaiModel struct {
	ID            string          `json:"id"`
	Match         genaiMatch      `json:"match"`
	Prices        json.RawMessage `json:"prices"` // a set, or a list of sets with constraints
	ContextWindow int64           `json:"context_window"`
}

type genaiMatch struct {
	Or         []genaiMatch `json:"or"`
	And        []genaiMatch `json:"and"`
	Equals     string       `json:"equals"`
	StartsWith string       `json:"starts_with"`
	EndsWith   string       `json:"ends_with"`
	Contains   string       `json:"contains"`
	Regex      string       `json:"regex"`
}

type genaiSet map[string]json.RawMessage // unit -> number or tiers

type genaiTiered struct {
	Base  json.Number `json:"base"`
	Tiers []struct {
		Start int64       `json:"start"`
		Price json.Number `json:"price"`
	} `json:"tiers"`
}

// litellmModel is what is read of litellm's layout.
type litellmModel struct {
	Provider  string      `json:"litellm_provider"`
	Mode      string      `json:"mode"`
	MaxInput  json.Number `json:"max_input_tokens"`
	MaxOutput json.Number `json:"max_output_tokens"`
	Input     json.Number `json:"input_cost_per_token"`
	Output    json.Number `json:"output_cost_per_token"`
	CacheRead json.Number `json:"cache_read_input_token_cost"`
}

type importer struct {
	genai   map[string]genaiProvider
	litellm map[string]litellmModel
	day     time.Time
	report  report
	kept    int
}

func newImporter(genaiData, litellmData []byte, day time.Time) (*importer, error) {
	imp := &importer{genai: map[string]genaiProvider{}, litellm: map[string]litellmModel{}, day: day}
	var providers []genaiProvider
	if err := json.Unmarshal(genaiData, &providers); err != nil {
		return nil, fmt.Errorf("genai-prices: %w", err)
	}
	for _, p := range providers {
		imp.genai[p.ID] = p
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(litellmData, &raw); err != nil {
		return nil, fmt.Errorf("litellm: %w", err)
	}
	for id, data := range raw {
		var m litellmModel
		// sample_spec and last_updated are no models: text where numbers belong.
		if json.Unmarshal(data, &m) == nil && m.Provider != "" {
			imp.litellm[id] = m
		}
	}
	return imp, nil
}

func (imp *importer) providers() []catalogue.Provider {
	var out []catalogue.Provider
	for _, s := range sellers {
		p := catalogue.Provider{ID: s.id, Aliases: s.aliases, Maker: s.maker, Fallback: s.fallback}
		models := imp.genai[s.id].Models
		sort.Slice(models, func(i, j int) bool { return models[i].ID < models[j].ID })
		for _, m := range models {
			entries, err := imp.model(s, m)
			if err != nil {
				imp.report.refuse(s.id, m.ID, err.Error())
				continue
			}
			p.Models = append(p.Models, entries...)
		}
		p.Models = imp.unclash(s.id, p.Models)
		imp.kept += len(p.Models)
		out = append(out, p)
	}
	return out
}

// otherModality are the words of ids whose models are billed by more than
// text: their text price is no ceiling.
var otherModality = []string{"audio", "tts", "realtime", "transcribe", "image", "live", "moderation", "omni"}

func billsMoreThanText(id string) bool {
	return slices.ContainsFunc(otherModality, func(word string) bool { return strings.Contains(strings.ToLower(id), word) })
}

func (imp *importer) model(s seller, m genaiModel) ([]catalogue.Model, error) {
	for _, d := range decisions {
		if d.provider == s.id && d.model == m.ID && !d.fromLitellm {
			return nil, errors.New("decided: " + d.reason)
		}
	}
	if billsMoreThanText(m.ID) {
		return nil, errors.New("bills more than text, by its name")
	}
	out := catalogue.Model{ID: m.ID, ContextWindow: m.ContextWindow}
	names, prefixes := map[string]bool{}, map[string]bool{}
	imp.match(s, m.ID, m.Match, names, prefixes)
	delete(names, m.ID)
	out.Names, out.Prefixes = sorted(names), sorted(prefixes)

	set, err := imp.setOf(s.id, m)
	if err != nil {
		return nil, err
	}
	if err := setRates(&out, set); err != nil {
		return nil, err
	}
	if err := imp.describe(s, &out); err != nil {
		return nil, err
	}
	if *out.Input == 0 && out.Mode != catalogue.ModeEmbedding {
		return nil, fmt.Errorf("zero input price on a %s model", out.Mode)
	}
	if err := out.Check(); err != nil {
		return nil, err
	}
	return imp.compare(s, out), nil
}

// match gathers exact names and prefixes. A maker's "contains" is anchored to
// the front, since an id that merely contains it is another maker's or
// another host's. Regular expressions are reported: those of the source allow
// for date suffixes, which every lookup does.
func (imp *importer) match(s seller, id string, m genaiMatch, names, prefixes map[string]bool) {
	for _, alternative := range m.Or {
		imp.match(s, id, alternative, names, prefixes)
	}
	switch {
	case m.Equals != "":
		names[m.Equals] = true
	case m.EndsWith != "":
		names[m.EndsWith] = true
	case m.StartsWith != "":
		prefixes[m.StartsWith] = true
	case m.Contains != "":
		prefixes[m.Contains] = true
	case m.Regex != "":
		imp.report.note(s.id, id, "rule dropped: regex "+m.Regex)
	case len(m.And) > 0:
		imp.report.note(s.id, id, "rule dropped: and")
	}
}

// setOf picks the price set of the importer's day: the latest that has begun.
// Of sets by time of day the dearest price of each class counts. Sets that
// begin later are noted.
func (imp *importer) setOf(provider string, m genaiModel) (genaiSet, error) {
	var plain genaiSet
	if json.Unmarshal(m.Prices, &plain) == nil {
		return plain, nil
	}
	var sets []struct {
		Constraint *struct {
			StartDate string `json:"start_date"`
			StartTime string `json:"start_time"`
		} `json:"constraint"`
		Prices genaiSet `json:"prices"`
	}
	if err := json.Unmarshal(m.Prices, &sets); err != nil {
		return nil, fmt.Errorf("prices: %w", err)
	}
	var chosen genaiSet
	began := ""
	for _, set := range sets {
		switch c := set.Constraint; {
		case c == nil:
			chosen = set.Prices
		case c.StartTime != "":
			imp.report.note(provider, m.ID, "priced by the time of day: the dearest is taken")
			for unit, price := range set.Prices {
				dearer, err := laterIsDearer(chosen[unit], price)
				if err != nil {
					return nil, err
				}
				if dearer {
					chosen[unit] = price
				}
			}
		default:
			start, err := time.Parse(time.DateOnly, c.StartDate)
			if err != nil {
				return nil, fmt.Errorf("constraint: %w", err)
			}
			if start.After(imp.day) {
				imp.report.note(provider, m.ID, "another price is announced from "+c.StartDate)
			} else if c.StartDate > began {
				chosen, began = set.Prices, c.StartDate
			}
		}
	}
	return chosen, nil
}

func laterIsDearer(a, b json.RawMessage) (bool, error) {
	if a == nil {
		return true, nil
	}
	x, err := nano(json.Number(a), 1)
	if err != nil {
		return false, err
	}
	y, err := nano(json.Number(b), 1)
	return y > x, err
}

// setRates fills the prices of an entry, or says why the set can't be used.
func setRates(m *catalogue.Model, set genaiSet) error {
	if len(set) == 0 {
		return errors.New("no prices")
	}
	for _, unit := range []string{"requests_kcount", "output_audio_mtok", "output_image_mtok", "output_video_mtok", "output_citation_mtok"} {
		if set[unit] != nil {
			return fmt.Errorf("bills %s besides text", unit)
		}
	}
	tiers := map[int64]*catalogue.Tier{}
	for unit, field := range map[string]func(*catalogue.Rates) **int64{
		"input_mtok":            func(r *catalogue.Rates) **int64 { return &r.Input },
		"cache_read_mtok":       func(r *catalogue.Rates) **int64 { return &r.CacheRead },
		"cache_write_mtok":      func(r *catalogue.Rates) **int64 { return &r.CacheWrite },
		"cache_write_1h_mtok":   func(r *catalogue.Rates) **int64 { return &r.CacheWrite1h },
		"output_mtok":           func(r *catalogue.Rates) **int64 { return &r.Output },
		"output_reasoning_mtok": func(r *catalogue.Rates) **int64 { return &r.Reasoning },
	} {
		raw := set[unit]
		if raw == nil {
			continue
		}
		number := json.Number(raw)
		if bytes.HasPrefix(raw, []byte("{")) {
			var tiered genaiTiered
			if err := json.Unmarshal(raw, &tiered); err != nil {
				return fmt.Errorf("%s: %w", unit, err)
			}
			number = tiered.Base
			for _, t := range tiered.Tiers {
				price, err := nano(t.Price, 1)
				if err != nil {
					return fmt.Errorf("%s: %w", unit, err)
				}
				if tiers[t.Start] == nil {
					tiers[t.Start] = &catalogue.Tier{Above: t.Start}
				}
				*field(&tiers[t.Start].Rates) = &price
			}
		}
		price, err := nano(number, 1)
		if err != nil {
			return fmt.Errorf("%s: %w", unit, err)
		}
		*field(&m.Rates) = &price
	}
	for _, t := range tiers {
		m.Tiers = append(m.Tiers, *t)
	}
	sort.Slice(m.Tiers, func(i, j int) bool { return m.Tiers[i].Above < m.Tiers[j].Above })
	if m.Input == nil {
		return errors.New("no input price")
	}
	return nil
}

// nano turns dollars per million, or with scale 1e6 dollars per token, into
// nano-USD per million: exactly, or not at all.
func nano(dollars json.Number, scale int64) (int64, error) {
	r, ok := new(big.Rat).SetString(dollars.String())
	if !ok {
		return 0, fmt.Errorf("%q is no number", dollars)
	}
	r.Mul(r, new(big.Rat).SetInt64(1_000_000_000))
	r.Mul(r, new(big.Rat).SetInt64(scale))
	if !r.IsInt() || !r.Num().IsInt64() {
		return 0, fmt.Errorf("%s is no whole number of nano-USD per million", dollars)
	}
	n := r.Num().Int64()
	if n < 0 || n > catalogue.MaxPerMillion {
		return 0, fmt.Errorf("%s is negative or absurd (above $1,000 per million)", dollars)
	}
	return n, nil
}

// known returns litellm's entries for a model of the catalogue, by id.
func (imp *importer) known(s seller, m catalogue.Model) map[string]litellmModel {
	found := map[string]litellmModel{}
	for _, name := range append([]string{m.ID}, m.Names...) {
		for _, prefix := range s.litellm {
			if l, ok := imp.litellm[prefix+name]; ok {
				found[name] = l
				break
			}
		}
	}
	for _, before := range s.litellm {
		for id, l := range imp.litellm {
			rest, ok := strings.CutPrefix(id, before)
			if !ok || found[rest].Provider != "" {
				continue
			}
			for _, prefix := range m.Prefixes {
				if strings.HasPrefix(rest, prefix) {
					found[rest] = l
				}
			}
		}
	}
	return found
}

// describe adds mode, context window and output maximum: the largest of all
// that litellm knows under the entry's names, since a ceiling is wanted.
func (imp *importer) describe(s seller, m *catalogue.Model) error {
	modes, window := map[string]bool{}, int64(0)
	for _, l := range imp.known(s, *m) {
		modes[l.Mode] = true
		if n, err := l.MaxOutput.Int64(); err == nil {
			m.MaxOutput = max(m.MaxOutput, n)
		}
		if n, err := l.MaxInput.Int64(); err == nil {
			window = max(window, n)
		}
	}
	if m.ContextWindow == 0 {
		m.ContextWindow = window
	}
	switch {
	case modes["embedding"] || strings.Contains(m.ID, "embed") || s.id == "voyageai":
		m.Mode, m.MaxOutput = catalogue.ModeEmbedding, 0
	case modes["chat"] || modes["responses"]:
		m.Mode = catalogue.ModeChat
	case modes["completion"]:
		m.Mode = catalogue.ModeCompletion
	case len(modes) > 0 && !modes[""]:
		return fmt.Errorf("litellm's mode is %s, not text", strings.Join(sorted(modes), ", "))
	case slices.Contains([]string{"ada", "babbage", "curie", "davinci"}, m.ID) || strings.HasPrefix(m.ID, "text-"):
		m.Mode = catalogue.ModeCompletion
	default:
		m.Mode = catalogue.ModeChat
	}
	return nil
}

// compare lists where litellm has other prices. Genai-prices' are taken, with
// two exceptions, where the name becomes an entry of its own at litellm's: by
// a decision, and where litellm prices the very name that genai-prices only
// covers by a prefix.
func (imp *importer) compare(s seller, m catalogue.Model) []catalogue.Model {
	out := []catalogue.Model{m}
	named := map[string]bool{m.ID: true}
	for _, name := range m.Names {
		named[name] = true
	}
	known := imp.known(s, m)
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		l := known[name]
		input, errIn := nano(l.Input, 1_000_000)
		output, errOut := nano(l.Output, 1_000_000)
		if errIn != nil || (errOut != nil && m.Output != nil) {
			continue // litellm has no exact price to compare with
		}
		if *m.Input == input && (m.Output == nil || *m.Output == output) {
			continue
		}
		taken := ""
		for _, d := range decisions {
			if d.provider == s.id && d.model == name && d.fromLitellm {
				taken = "litellm (decided: " + d.reason + ")"
			}
		}
		if taken == "" && !named[name] && input > 0 && (output > 0 || m.Output == nil) && !billsMoreThanText(name) {
			taken = "litellm (genai-prices has the name by a prefix only)"
		}
		if taken != "" {
			out[0].Names = slices.DeleteFunc(out[0].Names, func(n string) bool { return n == name })
			out = append(out, own(name, m, l, input, output))
		} else {
			taken = "genai-prices"
		}
		imp.report.disagreement(s.id, name, *m.Input, m.Output, input, output, taken)
	}
	return out
}

// own is the entry of one name at litellm's price.
func own(name string, m catalogue.Model, l litellmModel, input, output int64) catalogue.Model {
	entry := catalogue.Model{ID: name, Mode: m.Mode, ContextWindow: m.ContextWindow,
		Rates: catalogue.Rates{Input: &input, Output: &output}}
	if read, err := nano(l.CacheRead, 1_000_000); err == nil {
		entry.CacheRead = &read
	}
	if n, err := l.MaxOutput.Int64(); err == nil {
		entry.MaxOutput = n
	}
	return entry
}

// unclash drops names that an earlier entry of the provider already has.
func (imp *importer) unclash(provider string, models []catalogue.Model) []catalogue.Model {
	taken := map[string]string{}
	for _, m := range models {
		taken[strings.ToLower(m.ID)] = m.ID
	}
	for i := range models {
		m := &models[i]
		m.Names = slices.DeleteFunc(m.Names, func(name string) bool {
			by, ok := taken[strings.ToLower(name)]
			if ok && by != m.ID {
				imp.report.note(provider, m.ID, "name dropped: "+name+" belongs to "+by)
			}
			taken[strings.ToLower(name)] = m.ID
			if ok {
				taken[strings.ToLower(name)] = by
			}
			return ok
		})
	}
	return models
}

func sorted(set map[string]bool) []string {
	out := make([]string, 0, len(set))
	for s := range set {
		out = append(out, s)
	}
	sort.Strings(out)
	return out
}
