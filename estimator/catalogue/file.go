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
	"strings"
	"time"
)

// Format is the version of the file's layout.
const Format = 1

// MaxPerMillion is the highest price of a file, in nano-USD per million
// tokens: $1,000. What is above is a slip of the decimal point.
const MaxPerMillion = 1000 * 1_000_000_000

// MaxTokens bounds context windows, output maxima and tier bounds.
const MaxTokens = 1 << 30

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
)

// File is a price catalogue. Prices are nano-USD per million tokens.
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

// Model is one price entry.
type Model struct {
	ID            string   `json:"id"`
	Names         []string `json:"names,omitempty"`    // other ids of the same price
	Prefixes      []string `json:"prefixes,omitempty"` // ids that begin so have the same price
	Mode          string   `json:"mode"`
	ContextWindow int64    `json:"context_window,omitempty"` // tokens; 0 unknown
	MaxOutput     int64    `json:"max_output,omitempty"`     // tokens; 0 unknown
	Rates
	Tiers []Tier `json:"tiers,omitempty"`
}

// Rates are the prices that the source states; nil where it states none.
type Rates struct {
	Input        *int64 `json:"input,omitempty"`
	CacheRead    *int64 `json:"cache_read,omitempty"`
	CacheWrite   *int64 `json:"cache_write,omitempty"`
	CacheWrite1h *int64 `json:"cache_write_1h,omitempty"`
	Output       *int64 `json:"output,omitempty"`
	Reasoning    *int64 `json:"reasoning,omitempty"`
}

// Tier is the prices of a whole call whose input is above a bound.
type Tier struct {
	Above int64 `json:"above"` // input tokens, exclusive
	Rates
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
	for _, name := range append(m.Names, m.Prefixes...) {
		if name == "" || len(name) > 256 {
			return errors.New("names and prefixes: each must be 1 to 256 bytes")
		}
	}
	switch m.Mode {
	case ModeChat, ModeCompletion, ModeEmbedding:
	default:
		return fmt.Errorf("mode: %q is not chat, completion or embedding", m.Mode)
	}
	if m.ContextWindow < 0 || m.ContextWindow > MaxTokens {
		return fmt.Errorf("context_window: %d is not between 0 and %d", m.ContextWindow, MaxTokens)
	}
	if m.MaxOutput < 0 || m.MaxOutput > MaxTokens {
		return fmt.Errorf("max_output: %d is not between 0 and %d", m.MaxOutput, MaxTokens)
	}
	if m.Input == nil {
		return errors.New("input: a price is required")
	}
	if m.Output == nil && m.Mode != ModeEmbedding {
		return errors.New("output: a price is required of a model that writes")
	}
	if err := m.Rates.check(); err != nil {
		return err
	}
	above := int64(0)
	for _, tier := range m.Tiers {
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
	for _, p := range []struct {
		name  string
		price *int64
	}{
		{"input", r.Input}, {"cache_read", r.CacheRead}, {"cache_write", r.CacheWrite},
		{"cache_write_1h", r.CacheWrite1h}, {"output", r.Output}, {"reasoning", r.Reasoning},
	} {
		if p.price != nil && (*p.price < 0 || *p.price > MaxPerMillion) {
			return fmt.Errorf("%s: %d nano-USD per million is not between 0 and %d", p.name, *p.price, int64(MaxPerMillion))
		}
	}
	return nil
}
