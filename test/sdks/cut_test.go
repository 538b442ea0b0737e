package sdks

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/estimator/family/corpus"
	"github.com/budgetd/budgetd/test/provider"
)

// trueCounts are how many tokens the texts of the corpus have, by a tokenizer that
// was published. Texts that have changed since they were counted are left out.
func trueCounts(t *testing.T, tokenizer string) map[string]int {
	t.Helper()
	table, err := os.ReadFile("../../estimator/family/testdata/counts.tsv")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(table)), "\n")
	column := slices.Index(strings.Split(lines[0], "\t"), tokenizer)
	if column < 0 {
		t.Fatalf("no counts by %s", tokenizer)
	}
	counts := map[string]int{}
	for _, line := range lines[1:] {
		fields := strings.Split(line, "\t")
		if counts[fields[0]+" "+fields[1]], err = strconv.Atoi(fields[column]); err != nil {
			t.Fatal(err)
		}
	}
	return counts
}

// inPieces parts a text into so many pieces of nearly equal length.
func inPieces(text string, n int) []string {
	runes := []rune(text)
	pieces := make([]string, n)
	for i := range n {
		pieces[i] = string(runes[i*len(runes)/n : (i+1)*len(runes)/n])
	}
	return pieces
}

// A stream of Claude and Gemini that was cut is charged for the text that was seen, as
// OpenAI's tokenizer counts it, since neither has a public one for its models of today.
// Here the provider bills what the published tokenizer counts that comes closest.
func TestCutStreamsAgainstTrueCounts(t *testing.T) {
	r := start(t)
	_, base := r.proxy(t)
	c := newClients(t, base, r.key, &http.Client{})
	kinds := []string{"english", "european", "russian", "chinese", "japanese", "code", "json", "markdown", "logs"}
	for _, way := range []struct {
		endpoint
		tokenizer   string
		each, whole [2]float64 // bounds of charged / billed: of each text, and of all
	}{
		// Claude 2's: most is missing of Russian, and nothing of JSON.
		{messagesStream, "claude", [2]float64{0.5, 1.1}, [2]float64{0.78, 0.86}},
		// Of Japanese and Chinese too much is charged.
		{generateStream, "gemini", [2]float64{0.99, 1.6}, [2]float64{1.05, 1.13}},
	} {
		t.Run(way.name, func(t *testing.T) {
			counts := trueCounts(t, way.tokenizer)
			charged, billed, texts := int64(0), int64(0), 0
			for _, text := range corpus.Texts() {
				n := counts[text.ID+" "+text.Hash()]
				script := provider.Script{ID: way.name + text.ID, Tokens: provider.Tokens{Input: promptTokens}, CutAfter: n}
				if !slices.Contains(kinds, text.Kind) || n < 30 || n > 600 {
					continue
				}
				if script.Pieces = inPieces(text.Body, n); len(script.String()) > 24<<10 {
					continue
				}
				before, provided := r.settled(t), r.provided()
				if _, err := way.call(context.Background(), c, script); err == nil {
					t.Errorf("%s: the stream was not cut", text.ID)
				}
				got, want := r.settled(t).minus(before), r.provided().minus(provided)
				ratio := float64(got.Output) / float64(want.Output)
				if got.Input != want.Input || ratio < way.each[0] || ratio > way.each[1] {
					t.Errorf("%s: charged %+v, the provider bills %+v", text.ID, got, want)
				}
				charged, billed, texts = charged+got.Output, billed+want.Output, texts+1
			}
			if ratio := float64(charged) / float64(billed); texts < 50 || ratio < way.whole[0] || ratio > way.whole[1] {
				t.Errorf("of %d texts %d are charged for %d that the provider bills", texts, charged, billed)
			}
		})
	}
}
