package estimator

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/quota"
)

// wireFiles reads the examples of a folder in testdata.
func wireFiles[T any](t *testing.T, folder string, each func(t *testing.T, example T)) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no examples in %s: %v", folder, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var example T
			if err := json.Unmarshal(data, &example); err != nil {
				t.Fatal(err)
			}
			each(t, example)
		})
	}
}

// wireRequest is one whole request body after a provider's documentation.
type wireRequest struct {
	Provider  string          `json:"provider"`
	Request   json.RawMessage `json:"request"`
	MaxOutput quota.Tokens    `json:"max_output"`
	Choices   int             `json:"choices"`
	Parts     []struct {      // those that do not hang on the counting of text
		Kind                     Kind
		Count                    int64
		Floor, Expected, Ceiling quota.Tokens
	} `json:"parts"`
}

func TestWholeRequests(t *testing.T) {
	e := newEstimator(t, Config{UnknownModel: &Ceiling{Input: usd, Output: usd}})
	wireFiles(t, "requests", func(t *testing.T, example wireRequest) {
		got, err := e.Estimate(Call{Provider: example.Provider, ProviderRequest: parse(t, string(example.Request))}, anyDay)
		if err != nil {
			t.Fatal(err)
		}
		if got.MaxOutputTokens != example.MaxOutput || got.N != example.Choices || got.Output != upTo(example.MaxOutput*quota.Tokens(example.Choices)) {
			t.Errorf("output %d x %d, %+v", got.MaxOutputTokens, got.N, got.Output)
		}
		parts := map[Kind]Part{}
		var sum Figures
		for _, part := range got.Parts {
			have := parts[part.Kind]
			parts[part.Kind] = Part{part.Kind, have.Count + part.Count, have.Tokens.plus(part.Tokens), ""}
			sum = sum.plus(part.Tokens)
		}
		if sum != got.Input || parts[KindText].Tokens.Ceiling == 0 {
			t.Errorf("the parts are %+v, the input %+v", got.Parts, got.Input)
		}
		for _, want := range example.Parts {
			if have := parts[want.Kind]; have.Count != want.Count || have.Tokens != (Figures{want.Floor, want.Expected, want.Ceiling}) {
				t.Errorf("%+v, want %+v", have, want)
			}
		}
		if size := int64(len(example.Request)); parts[KindText].Count > 1000 || parts[KindText].Count > size {
			t.Errorf("%d bytes of text in a body of %d", parts[KindText].Count, size)
		}
	})
}
