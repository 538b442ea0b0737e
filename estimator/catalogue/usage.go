package catalogue

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

//go:embed usage.json
var embeddedUsage []byte

// EmbeddedUsage returns the bytes of the embedded extractors. They must not be
// changed.
func EmbeddedUsage() []byte { return embeddedUsage }

// UsageFormat is the layout that DecodeUsage reads.
const UsageFormat = 1

// UsageFile says where the usage objects of providers have their counts.
type UsageFile struct {
	Format  int                  `json:"format"`
	Layouts map[string]Extractor `json:"layouts"`
}

// Extractor maps the counts of one layout of usage objects to classes.
type Extractor struct {
	Source string  `json:"source"` // where the provider documents the layout
	Counts []Count `json:"counts"`
}

// Count is where one class is.
type Count struct {
	Class   string      `json:"class"`              // of Classes
	At      []UsagePath `json:"at"`                 // the first that is there counts
	ElseSum []UsagePath `json:"else_sum,omitempty"` // added up where none of At is there
	PartOf  string      `json:"part_of,omitempty"`  // an earlier class that includes it in the provider's count
}

// UsagePath leads to a count: "key", "object.key", or "list[name=value].key" for
// the sum over a list's objects in which a name has a value.
type UsagePath struct {
	Object      string // "" for a key of the usage object itself
	List        bool   // Object is a list
	Name, Value string // of a List
	Key         string
}

var usagePath = regexp.MustCompile(`^(?:(\w+)(\[(\w+)=(\w+)\])?\.)?(\w+)$`)

// UnmarshalText reads a path as UsagePath documents it.
func (p *UsagePath) UnmarshalText(text []byte) error {
	m := usagePath.FindStringSubmatch(string(text))
	if m == nil {
		return fmt.Errorf("%q is no path; write key, object.key or list[name=value].key", text)
	}
	*p = UsagePath{Object: m[1], List: m[2] != "", Name: m[3], Value: m[4], Key: m[5]}
	return nil
}

// DecodeUsage reads and checks extractors. Unknown fields are refused. The error
// names the layout and the count at fault.
func DecodeUsage(data []byte) (UsageFile, error) {
	var f UsageFile
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		return UsageFile{}, err
	}
	if decoder.More() {
		return UsageFile{}, errors.New("data after the extractors")
	}
	if f.Format != UsageFormat {
		return UsageFile{}, fmt.Errorf("format: %d is not %d", f.Format, UsageFormat)
	}
	for _, layout := range slices.Sorted(maps.Keys(f.Layouts)) {
		if err := f.Layouts[layout].check(); err != nil {
			return UsageFile{}, fmt.Errorf("layouts: %q: %w", layout, err)
		}
	}
	return f, nil
}

func (e Extractor) check() error {
	if e.Source == "" {
		return errors.New("source: is missing")
	}
	if len(e.Counts) == 0 {
		return errors.New("counts: one is required")
	}
	known := map[string]bool{} // by class; true for a part
	for i, c := range e.Counts {
		_, twice := known[c.Class]
		switch {
		case !slices.Contains(Classes[:], c.Class):
			return fmt.Errorf("counts[%d]: class: %q is no class of tokens", i, c.Class)
		case twice:
			return fmt.Errorf("counts[%d]: class: %q is stated twice", i, c.Class)
		case len(c.At) == 0:
			return fmt.Errorf("counts[%d]: at: a path is required", i)
		}
		if c.PartOf != "" {
			if part, stated := known[c.PartOf]; !stated || part {
				return fmt.Errorf("counts[%d]: part_of: %q is no whole class before it", i, c.PartOf)
			}
		}
		known[c.Class] = c.PartOf != ""
	}
	return nil
}
