// Package catalogue is the price catalogue that is embedded in the binary, and
// the format of its file. What the prices mean is in package estimator; the
// file is written by estimator/internal/importprices.
package catalogue

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Format is the version of the file's layout.
const Format = 2

// The highest prices of a file; what is above is a slip of the decimal point.
const (
	MaxPerMillion  = 1_000 * 1_000_000_000   // $1,000 per million tokens, in nano-USD
	MaxPerThousand = 100_000 * 1_000_000_000 // $100 each, in nano-USD per thousand
	MaxPerHour     = 36_000 * 1_000_000_000  // $10 a second, in nano-USD per hour
)

// MaxTokens bounds context windows, output maxima and tier bounds.
const MaxTokens = 1 << 30

// Classes are the classes of tokens that a price may state, and Units what may
// be billed by itself. Package estimator says what each is.
var (
	Classes = [...]string{
		"input", "input_audio", "input_image", "input_video",
		"cache_read", "cache_read_audio", "cache_read_image", "cache_write", "cache_write_1h",
		"output", "output_audio", "output_image", "output_video", "reasoning",
	}
	Units = [...]string{"image", "second", "page", "search", "request"}
)

// MaxPrice is the highest price of a class or unit, and whether there is such a
// class or unit.
func MaxPrice(name string) (most int64, ok bool) {
	switch {
	case slices.Contains(Classes[:], name):
		return MaxPerMillion, true
	case name == "second":
		return MaxPerHour, true
	case slices.Contains(Units[:], name):
		return MaxPerThousand, true
	}
	return 0, false
}

//go:embed prices.json
var embedded []byte

// Embedded returns the bytes of the embedded catalogue. They must not be
// changed.
func Embedded() []byte { return embedded }

// The modes of a model.
const (
	ModeChat       = "chat"       // messages in, text out
	ModeCompletion = "completion" // text in, text out
	ModeEmbedding  = "embedding"  // text in, no tokens out
	ModeMedia      = "media"      // pictures, sound, video or documents, in or out
)

// File is a price catalogue. Prices are nano-USD: per million tokens, per hour
// for "second", and per thousand for the other units.
type File struct {
	Format    int        `json:"format"`
	AsOf      string     `json:"as_of"` // YYYY-MM-DD: the day whose prices these are
	Unit      string     `json:"unit"`
	Sources   []Source   `json:"sources"`
	Providers []Provider `json:"providers"`
}

// Source says where facts of the file come from.
type Source struct {
	Name        string `json:"name"`
	URL         string `json:"url"`
	Revision    string `json:"revision"`
	Date        string `json:"date"` // YYYY-MM-DD
	SHA256      string `json:"sha256"`
	Licence     string `json:"licence"`
	LicenceFile string `json:"licence_file"`
	Used        string `json:"used"` // which facts were taken
}

// Provider is one seller of calls.
type Provider struct {
	ID       string   `json:"id"`
	Aliases  []string `json:"aliases,omitempty"`
	Maker    bool     `json:"maker,omitempty"`    // sells its own models: found first when a call names no provider
	Fallback []string `json:"fallback,omitempty"` // makers whose prices hold for models that are not listed here
	Models   []Model  `json:"models"`
}

// Model is one entry.
type Model struct {
	ID            string   `json:"id"`
	Names         []string `json:"names,omitempty"` // other ids of the same price
	Rules         []Rule   `json:"rules,omitempty"` // ids that fit one of them have the same price
	Mode          string   `json:"mode"`
	ContextWindow int64    `json:"context_window,omitempty"` // tokens; 0 unknown
	MaxOutput     int64    `json:"max_output,omitempty"`     // tokens; 0 unknown
	Prices        []Price  `json:"prices"`                   // in the order in which they begin
}

// Rule matches ids, in lower case; exactly one of the fields is set. Regex is a
// regular expression of RE2.
type Rule struct {
	StartsWith string `json:"starts_with,omitempty"`
	EndsWith   string `json:"ends_with,omitempty"`
	Contains   string `json:"contains,omitempty"`
	Regex      string `json:"regex,omitempty"`
}

// Price holds from its day, 00:00 UTC, until the next one begins.
type Price struct {
	From     string    `json:"from,omitempty"` // YYYY-MM-DD; the first has none
	Rates    Rates     `json:"rates"`
	Tiers    []Tier    `json:"tiers,omitempty"`
	Services []Service `json:"services,omitempty"` // by service tier or speed
}

// Rates are the prices that the source states, by class or unit.
type Rates map[string]int64

// Tier is the prices of a whole call whose input is above a bound. What it does
// not state is as below the bound.
type Tier struct {
	Above int64 `json:"above"` // input tokens, exclusive
	Rates Rates `json:"rates"`
}

// Service is the prices of calls that are served otherwise than usual. What it
// does not state is as usual.
type Service struct {
	Name  string `json:"name"` // as the provider's answer has it, in lower case
	Rates Rates  `json:"rates"`
	Tiers []Tier `json:"tiers,omitempty"`
}

// Decode reads and checks a catalogue. Unknown fields are refused.
func Decode(data []byte) (File, error) {
	var f File
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		return File{}, err
	}
	if decoder.More() {
		return File{}, errors.New("data after the catalogue")
	}
	return f, f.Check()
}

// Version names a catalogue: its day and the first 12 hex digits of the
// SHA-256 of its bytes.
func (f File) Version(data []byte) string {
	sum := sha256.Sum256(data)
	return f.AsOf + "." + hex.EncodeToString(sum[:])[:12]
}

// Check returns an error that names the entry and the field at fault.
func (f File) Check() error {
	if f.Format != Format {
		return fmt.Errorf("format: %d is not %d", f.Format, Format)
	}
	if _, err := time.Parse(time.DateOnly, f.AsOf); err != nil {
		return fmt.Errorf("as_of: %q is not a date YYYY-MM-DD", f.AsOf)
	}
	providers := map[string]bool{}
	for _, p := range f.Providers {
		for _, name := range append([]string{p.ID}, p.Aliases...) {
			if name == "" || name != strings.ToLower(name) || providers[name] {
				return fmt.Errorf("provider %q: name %q is empty, not in lower case or taken", p.ID, name)
			}
			providers[name] = true
		}
	}
	for _, p := range f.Providers {
		for _, name := range p.Fallback {
			if !providers[name] {
				return fmt.Errorf("provider %q: fallback %q is not a provider", p.ID, name)
			}
		}
		taken := map[string]string{}
		for _, m := range p.Models {
			if err := m.Check(); err != nil {
				return fmt.Errorf("provider %q, model %q: %w", p.ID, m.ID, err)
			}
			for _, name := range append([]string{m.ID}, m.Names...) {
				name = strings.ToLower(name)
				if by, ok := taken[name]; ok && by != m.ID {
					return fmt.Errorf("provider %q: models %q and %q both go by %q", p.ID, by, m.ID, name)
				}
				taken[name] = m.ID
			}
		}
	}
	return nil
}

// Check returns an error that names the field at fault.
func (m Model) Check() error {
	if m.ID == "" || len(m.ID) > 256 {
		return errors.New("id: must be 1 to 256 bytes")
	}
	for _, name := range m.Names {
		if name == "" || len(name) > 256 {
			return errors.New("names: each must be 1 to 256 bytes")
		}
	}
	for _, rule := range m.Rules {
		if err := rule.check(); err != nil {
			return fmt.Errorf("rules: %w", err)
		}
	}
	switch m.Mode {
	case ModeChat, ModeCompletion, ModeEmbedding, ModeMedia:
	default:
		return fmt.Errorf("mode: %q is not chat, completion, embedding or media", m.Mode)
	}
	if m.ContextWindow < 0 || m.ContextWindow > MaxTokens {
		return fmt.Errorf("context_window: %d is not between 0 and %d", m.ContextWindow, MaxTokens)
	}
	if m.MaxOutput < 0 || m.MaxOutput > MaxTokens {
		return fmt.Errorf("max_output: %d is not between 0 and %d", m.MaxOutput, MaxTokens)
	}
	if len(m.Prices) == 0 {
		return errors.New("prices: one is required")
	}
	for i, price := range m.Prices {
		switch {
		case i == 0 && price.From != "":
			return errors.New("prices: the first holds from the beginning and has no date")
		case i > 0 && price.From <= m.Prices[i-1].From:
			return fmt.Errorf("prices: %q does not come after %q", price.From, m.Prices[i-1].From)
		case i > 0:
			if _, err := time.Parse(time.DateOnly, price.From); err != nil {
				return fmt.Errorf("prices: from: %q is not a date YYYY-MM-DD", price.From)
			}
		}
		if err := price.check(m.Mode); err != nil {
			return err
		}
	}
	return nil
}

func (p Price) check(mode string) error {
	_, input := p.Rates["input"]
	_, output := p.Rates["output"]
	switch {
	case !input && mode != ModeMedia:
		return errors.New("input: a price is required")
	case !output && mode != ModeEmbedding && mode != ModeMedia:
		return errors.New("output: a price is required of a model that writes")
	case len(p.Rates) == 0:
		return errors.New("rates: a price is required")
	case !input:
		for _, class := range Classes {
			if _, stated := p.Rates[class]; stated {
				return fmt.Errorf("%s: has a price, and input has none", class)
			}
		}
	}
	if err := checkRates(p.Rates, p.Tiers); err != nil {
		return err
	}
	for i, s := range p.Services {
		if s.Name == "" || len(s.Name) > 32 || s.Name != strings.ToLower(s.Name) || (i > 0 && s.Name <= p.Services[i-1].Name) {
			return fmt.Errorf("services: %q is empty, over 32 bytes, not in lower case or not in order", s.Name)
		}
		if err := checkRates(s.Rates, s.Tiers); err != nil {
			return fmt.Errorf("services: %s: %w", s.Name, err)
		}
	}
	return nil
}

func checkRates(rates Rates, tiers []Tier) error {
	if err := rates.check(); err != nil {
		return err
	}
	above := int64(0)
	for _, tier := range tiers {
		if tier.Above <= above || tier.Above > MaxTokens {
			return fmt.Errorf("tiers: bound %d is not above %d, or over %d", tier.Above, above, MaxTokens)
		}
		above = tier.Above
		if err := tier.Rates.check(); err != nil {
			return fmt.Errorf("tiers: %w", err)
		}
	}
	return nil
}

func (r Rates) check() error {
	for name, price := range r {
		most, known := MaxPrice(name)
		if !known {
			return fmt.Errorf("%q is no class of tokens and no unit", name)
		}
		if price < 0 || price > most {
			return fmt.Errorf("%s: %d nano-USD is not between 0 and %d", name, price, most)
		}
	}
	return nil
}

func (r Rule) check() error {
	set := 0
	for _, text := range []string{r.StartsWith, r.EndsWith, r.Contains, r.Regex} {
		if text != "" {
			set++
		}
		if len(text) > 256 {
			return errors.New("each must be at most 256 bytes")
		}
	}
	if set != 1 {
		return errors.New("each must have one of starts_with, ends_with, contains and regex")
	}
	if _, err := regexp.Compile(r.Regex); err != nil {
		return fmt.Errorf("regex: %w", err)
	}
	return nil
}
