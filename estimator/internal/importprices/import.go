package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

	Searches map[string]json.Number     `json:"search_context_cost_per_query"` // by size
	Specific map[string]json.RawMessage `json:"provider_specific_entry"`       // "fast": a factor

	costs map[string]json.Number // every other field whose name speaks of a cost
}

type importer struct {
	genai   map[string]genaiProvider
	litellm map[string]litellmModel
	dev     map[string]map[string]devModel
	day     time.Time
	report  report
	kept    int
}

func newImporter(genaiData, litellmData, devData []byte, day time.Time) (*importer, error) {
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
		if json.Unmarshal(data, &m) != nil || m.Provider == "" {
			continue
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(data, &fields); err != nil {
			return nil, fmt.Errorf("litellm: %s: %w", id, err)
		}
		m.costs = map[string]json.Number{}
		for name, value := range fields {
			var number json.Number
			if strings.Contains(name, "cost") && json.Unmarshal(value, &number) == nil && number != "" {
				m.costs[name] = number
			}
		}
		imp.litellm[id] = m
	}
	if err := json.Unmarshal(devData, &imp.dev); err != nil {
		return nil, fmt.Errorf("models.dev: %w", err)
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
		p.Models = append(p.Models, imp.media(s, p.Models)...)
		p.Models = imp.unclash(s.id, p.Models)
		imp.compareWithDev(s, p.Models)
		imp.kept += len(p.Models)
		out = append(out, p)
	}
	return out
}

// modalities are words of ids whose models are billed by more than text, and the
// classes of which one must have a price then: the text price is no ceiling.
var modalities = []struct {
	word    string
	classes []string
}{
	{"audio", []string{"input_audio", "output_audio"}},
	{"tts", []string{"output_audio"}},
	{"realtime", []string{"output_audio"}},
	{"live", []string{"output_audio"}},
	{"transcribe", []string{"input_audio"}},
	{"image", []string{"output_image", "input_image"}},
	{"omni", []string{"output_video", "output_image"}},
	{"moderation", nil},
}

// lacksPrice says which price is missing by the name of the model, "" if none.
func lacksPrice(id string, rates catalogue.Rates) string {
	for _, m := range modalities {
		has := func(class string) bool { _, stated := rates[class]; return stated }
		if strings.Contains(strings.ToLower(id), m.word) && !slices.ContainsFunc(m.classes, has) {
			return m.word
		}
	}
	return ""
}

func (imp *importer) model(s seller, m genaiModel) ([]catalogue.Model, error) {
	for _, d := range decisions {
		if d.provider == s.id && d.model == m.ID && !d.fromLitellm {
			return nil, errors.New("decided: " + d.reason)
		}
	}
	out := catalogue.Model{ID: m.ID, ContextWindow: m.ContextWindow}
	names := map[string]bool{}
	imp.match(s, m.ID, m.Match, names, &out.Rules)
	delete(names, m.ID)
	out.Names = sorted(names)

	var err error
	if out.Prices, err = imp.pricesOf(s.id, m); err != nil {
		return nil, err
	}
	if err := imp.describe(s, &out); err != nil {
		return nil, err
	}
	for _, price := range out.Prices {
		if _, stated := price.Rates["request"]; stated {
			price.Rates["search"] = 0
			imp.report.note(s.id, m.ID, "the price of a request is that of its searches: those are 0")
		}
	}
	imp.supplement(s, &out)
	for _, price := range out.Prices {
		if word := lacksPrice(m.ID, price.Rates); word != "" {
			return nil, fmt.Errorf("bills more than text, by the %q in its name, and no source prices that", word)
		}
		if input, stated := price.Rates["input"]; stated && input == 0 && out.Mode != catalogue.ModeEmbedding {
			return nil, fmt.Errorf("zero input price on a %s model", out.Mode)
		}
	}
	if err := out.Check(); err != nil {
		return nil, err
	}
	return imp.compare(s, out), nil
}

// match gathers exact names and rules. What is contained may stand at the front
// too, where ids without a provider are looked up.
func (imp *importer) match(s seller, id string, m genaiMatch, names map[string]bool, rules *[]catalogue.Rule) {
	for _, alternative := range m.Or {
		imp.match(s, id, alternative, names, rules)
	}
	switch {
	case m.Equals != "":
		names[m.Equals] = true
	case m.EndsWith != "":
		*rules = append(*rules, catalogue.Rule{EndsWith: m.EndsWith})
	case m.StartsWith != "":
		*rules = append(*rules, catalogue.Rule{StartsWith: m.StartsWith})
	case m.Contains != "":
		*rules = append(*rules, catalogue.Rule{StartsWith: m.Contains}, catalogue.Rule{Contains: m.Contains})
	case m.Regex != "":
		*rules = append(*rules, catalogue.Rule{Regex: m.Regex})
	case len(m.And) > 0:
		imp.report.note(s.id, id, "rule dropped: and")
	}
}

// pricesOf reads the price sets in the order in which they begin. Of sets by the
// time of day the dearest price of each class counts, and the cheaper set is a
// service of its own, "off-peak".
func (imp *importer) pricesOf(provider string, m genaiModel) ([]catalogue.Price, error) {
	var plain genaiSet
	if json.Unmarshal(m.Prices, &plain) == nil {
		price, err := imp.priceOf(provider, m.ID, plain)
		return []catalogue.Price{price}, err
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
	var prices []catalogue.Price
	for _, set := range sets {
		price, err := imp.priceOf(provider, m.ID, set.Prices)
		if err != nil {
			return nil, err
		}
		switch c := set.Constraint; {
		case c == nil:
			prices = append(prices, price)
		case len(prices) == 0:
			return nil, errors.New("prices: the first has a constraint")
		case c.StartTime != "":
			imp.report.note(provider, m.ID, "priced by the time of day: the dearest is taken, the cheaper is the service off-peak")
			day := &prices[len(prices)-1]
			night := catalogue.Rates{}
			for class, dear := range price.Rates {
				if cheap, stated := day.Rates[class]; stated {
					night[class] = min(cheap, dear)
				}
				day.Rates[class] = max(dear, day.Rates[class])
			}
			day.Services = append(day.Services, catalogue.Service{Name: "off-peak", Rates: night})
		default:
			if _, err := time.Parse(time.DateOnly, c.StartDate); err != nil {
				return nil, fmt.Errorf("constraint: %w", err)
			}
			price.From = c.StartDate
			prices = append(prices, price)
			if start, _ := time.Parse(time.DateOnly, c.StartDate); start.After(imp.day) {
				imp.report.note(provider, m.ID, "another price is announced from "+c.StartDate)
			}
		}
	}
	sort.SliceStable(prices, func(i, j int) bool { return prices[i].From < prices[j].From })
	return prices, nil
}

// genaiUnits are the catalogue's names of what genai-prices prices.
var genaiUnits = map[string]string{
	"input_mtok": "input", "input_audio_mtok": "input_audio", "input_image_mtok": "input_image", "input_video_mtok": "input_video",
	"cache_read_mtok": "cache_read", "cache_audio_read_mtok": "cache_read_audio", "cache_image_read_mtok": "cache_read_image",
	"cache_write_mtok": "cache_write", "cache_write_1h_mtok": "cache_write_1h",
	"output_mtok": "output", "output_audio_mtok": "output_audio", "output_image_mtok": "output_image", "output_video_mtok": "output_video",
	"output_reasoning_mtok": "reasoning",
	"requests_kcount":       "request", "web_searches_kcount": "search",
}

// priceOf turns one set into a price, or says why it can't be used.
func (imp *importer) priceOf(provider, id string, set genaiSet) (catalogue.Price, error) {
	price := catalogue.Price{Rates: catalogue.Rates{}}
	if len(set) == 0 {
		return price, errors.New("no prices")
	}
	tiers := map[int64]catalogue.Rates{}
	for _, unit := range slices.Sorted(maps.Keys(set)) {
		name, known := genaiUnits[unit]
		switch {
		case unit == "output_citation_mtok":
			imp.report.note(provider, id, "tokens of citations count as output, which is dearer")
			continue
		case !known:
			return price, fmt.Errorf("bills %s, which the catalogue does not know", unit)
		}
		number := json.Number(set[unit])
		if bytes.HasPrefix(set[unit], []byte("{")) {
			var tiered genaiTiered
			if err := json.Unmarshal(set[unit], &tiered); err != nil {
				return price, fmt.Errorf("%s: %w", unit, err)
			}
			number = tiered.Base
			for _, t := range tiered.Tiers {
				n, err := nano(t.Price, 1)
				if err != nil {
					return price, fmt.Errorf("%s: %w", unit, err)
				}
				if tiers[t.Start] == nil {
					tiers[t.Start] = catalogue.Rates{}
				}
				tiers[t.Start][name] = n
			}
		}
		n, err := nano(number, 1)
		if err != nil {
			return price, fmt.Errorf("%s: %w", unit, err)
		}
		price.Rates[name] = n
	}
	price.Tiers = tiersOf(tiers)
	if _, stated := price.Rates["input"]; !stated {
		return price, errors.New("no input price")
	}
	return price, nil
}

func tiersOf(tiers map[int64]catalogue.Rates) []catalogue.Tier {
	var out []catalogue.Tier
	for _, above := range slices.Sorted(maps.Keys(tiers)) {
		out = append(out, catalogue.Tier{Above: above, Rates: tiers[above]})
	}
	return out
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
			for _, rule := range m.Rules {
				if rule.StartsWith != "" && strings.HasPrefix(rest, rule.StartsWith) {
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
	case modes["moderation"]:
		return errors.New("litellm's mode is moderation, which is free")
	case len(modes) > 0 && !modes[""]:
		m.Mode = catalogue.ModeMedia
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
	current := imp.current(m)
	base := m.Prices[current].Rates
	for _, name := range slices.Sorted(maps.Keys(known)) {
		l := known[name]
		input, errIn := l.nano("input_cost_per_token", 1_000_000)
		output, errOut := l.nano("output_cost_per_token", 1_000_000)
		ours, writes := base["output"]
		if errIn != nil || (errOut != nil && writes) {
			continue // litellm has no exact price to compare with
		}
		if base["input"] == input && (!writes || ours == output) {
			continue
		}
		taken := ""
		for _, d := range decisions {
			if d.provider == s.id && d.model == name && d.fromLitellm {
				taken = "litellm (decided: " + d.reason + ")"
			}
		}
		entry := own(name, m, l, input, output)
		if taken == "" && !named[name] && input > 0 && (output > 0 || !writes) && lacksPrice(name, entry.Prices[0].Rates) == "" {
			taken = "litellm (genai-prices has the name by a prefix only)"
		}
		if taken != "" {
			out[0].Names = slices.DeleteFunc(out[0].Names, func(n string) bool { return n == name })
			out = append(out, entry)
		} else {
			taken = "genai-prices"
		}
		imp.report.disagreement(s.id, name, base["input"], base["output"], input, output, taken)
	}
	return out
}

// current is which price is in force on the importer's day.
func (imp *importer) current(m catalogue.Model) int {
	at := 0
	for i, price := range m.Prices {
		if price.From <= imp.day.Format(time.DateOnly) {
			at = i
		}
	}
	return at
}

// own is the entry of one name at litellm's price.
func own(name string, m catalogue.Model, l litellmModel, input, output int64) catalogue.Model {
	entry := catalogue.Model{ID: name, Mode: m.Mode, ContextWindow: m.ContextWindow,
		Prices: []catalogue.Price{{Rates: catalogue.Rates{"input": input, "output": output}}}}
	l.addTo(&entry.Prices[0])
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
