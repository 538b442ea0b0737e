package catalogue

import (
	"strings"
	"testing"
)

func TestExtractorsAreChecked(t *testing.T) {
	if _, err := DecodeUsage(EmbeddedUsage()); err != nil {
		t.Fatal(err)
	}
	layout := func(counts string) string {
		return `{"format": 1, "layouts": {"x": {"source": "s", "counts": [` + counts + `]}}}`
	}
	for text, want := range map[string]string{
		`{"format": 2}`: "format: 2 is not 1",
		`{"format": 1, "layouts": {"x": {"counts": []}}}`:                `layouts: "x": source: is missing`,
		`{"format": 1, "layouts": {"x": {"source": "s", "counts": []}}}`: `layouts: "x": counts: one is required`,
		`{"format": 1} {}`:                                                         "data after the extractors",
		`{"format": 1, "tables": {}}`:                                              "unknown field",
		layout(`{"class": "inputs", "at": ["a"]}`):                                 `counts[0]: class: "inputs" is no class of tokens`,
		layout(`{"class": "input", "at": []}`):                                     "counts[0]: at: a path is required",
		layout(`{"class": "input", "at": ["a"]}, {"class": "input", "at": ["b"]}`): `counts[1]: class: "input" is stated twice`,
		layout(`{"class": "reasoning", "at": ["a"], "part_of": "output"}`):         `counts[0]: part_of: "output" is no whole class before it`,
		layout(`{"class": "input", "at": ["a.b.c"]}`):                              `"a.b.c" is no path`,
		layout(`{"class": "input", "at": ["a[b].c"]}`):                             `"a[b].c" is no path`,
	} {
		if _, err := DecodeUsage([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestUsagePath(t *testing.T) {
	for text, want := range map[string]UsagePath{
		"input_tokens":                     {Key: "input_tokens"},
		"details.thinking":                 {Object: "details", Key: "thinking"},
		"cacheDetails[ttl=1h].inputTokens": {Object: "cacheDetails", List: true, Name: "ttl", Value: "1h", Key: "inputTokens"},
	} {
		var got UsagePath
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}
