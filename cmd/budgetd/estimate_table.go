package main

import (
	"encoding/json"
	"fmt"

	"github.com/budgetd/budgetd/estimator/family"
)

// notMeasured is shown where no real tokenizer was there to count with.
const notMeasured = "not measured"

// ruleRow is a row of the table as JSON.
type ruleRow struct {
	Family    string     `json:"family"`
	Measured  bool       `json:"measured"`
	Tokenizer string     `json:"tokenizer,omitempty"`
	Source    string     `json:"source"`
	All       *ruleTally `json:"all,omitempty"`
	Kinds     []ruleKind `json:"kinds,omitempty"`
}

type ruleTally struct {
	Texts     int     `json:"texts"`
	UnderRate float64 `json:"underRate"` // texts whose real count is above the ceiling, 0 to 1
	OverMean  float64 `json:"overMean"`  // ceiling / real
	Over95    float64 `json:"over95"`    // 95 percent of the texts have no more
}

type ruleKind struct {
	Kind string `json:"kind"`
	ruleTally
}

func ruleTallyOf(t family.Tally) ruleTally {
	return ruleTally{t.Texts, t.UnderRate(), float64(t.OverMean) / 100, float64(t.OverMost95) / 100}
}

// showRules prints how well the rules for models without a public tokenizer do
// on the corpus. It asks no broker: the figures are part of the program.
func showRules(s streams, asJSON bool) error {
	measures, err := family.Measured()
	if err != nil {
		return err
	}
	if asJSON {
		rows := make([]ruleRow, len(measures))
		for i, m := range measures {
			rows[i] = ruleRow{Family: m.Family, Measured: m.Tokenizer != "", Tokenizer: m.Tokenizer, Source: m.Source}
			if !rows[i].Measured {
				continue
			}
			all := ruleTallyOf(m.Tally)
			rows[i].All = &all
			for _, k := range m.Kinds {
				rows[i].Kinds = append(rows[i].Kinds, ruleKind{k.Kind, ruleTallyOf(k.Tally)})
			}
		}
		return json.NewEncoder(s.out).Encode(map[string]any{"rules": rows})
	}

	fmt.Fprint(s.out, "How far the ceilings of the rules are from what real tokenizers count.\n"+
		"under: texts whose real count is above the ceiling. over: ceiling / real count.\n\n")
	t := newTable(s.out, "FAMILY", "TOKENIZER", "TEXTS", "UNDER", "OVER, MEAN", "OVER, 95 %", "RULE FROM")
	for _, m := range measures {
		if m.Tokenizer == "" {
			t.AppendRow([]any{m.Family, notMeasured, "", "", "", "", m.Source})
			continue
		}
		t.AppendRow([]any{m.Family, m.Tokenizer, m.Texts, showRate(m.UnderRate()), showRatio(m.OverMean), showRatio(m.OverMost95), m.Source})
	}
	t.Render()

	fmt.Fprint(s.out, "\nBy kind of text: under, and over (mean / 95 %).\n")
	for _, m := range measures {
		if m.Tokenizer == "" {
			continue
		}
		fmt.Fprintf(s.out, "\n%s by %s\n", m.Family, m.Tokenizer)
		kinds := newTable(s.out, "KIND", "TEXTS", "UNDER", "OVER, MEAN", "OVER, 95 %")
		for _, k := range m.Kinds {
			kinds.AppendRow([]any{k.Kind, k.Texts, showRate(k.UnderRate()), showRatio(k.OverMean), showRatio(k.OverMost95)})
		}
		kinds.Render()
	}
	return nil
}

func showRate(rate float64) string { return fmt.Sprintf("%.1f %%", 100*rate) }

func showRatio(hundredths int) string { return fmt.Sprintf("%d.%02d", hundredths/100, hundredths%100) }
