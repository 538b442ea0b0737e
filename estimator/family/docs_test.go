package family

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The table of docs/estimator.md is that of the embedded figures.
func TestDocumentedTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/estimator.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Measured()
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, m := range rows {
		if m.Tokenizer == "" {
			fmt.Fprintf(&want, "| `%s` | not measured | | | | |\n", m.Family)
			continue
		}
		fmt.Fprintf(&want, "| `%s` | %s | %d | %.1f %% | %d.%02d | %d.%02d |\n", m.Family, m.Tokenizer, m.Texts, 100*m.UnderRate(),
			m.OverMean/100, m.OverMean%100, m.OverMost95/100, m.OverMost95%100)
	}
	if !strings.Contains(string(page), want.String()) {
		t.Errorf("docs/estimator.md does not have this table:\n%s", want.String())
	}
}
