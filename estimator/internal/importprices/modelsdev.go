package main

import (
	"encoding/json"

	"github.com/budgetd/budgetd/estimator/catalogue"
)

// devModel is what is read of models.dev, converted to JSON: dollars per million.
type devModel struct {
	Cost struct {
		Input  json.Number `json:"input"`
		Output json.Number `json:"output"`
	} `json:"cost"`
}

// compareWithDev lists where models.dev has other prices of text. They are not
// taken: it is the older of the sources.
func (imp *importer) compareWithDev(s seller, models []catalogue.Model) {
	for _, m := range models {
		rates := m.Prices[imp.current(m)].Rates
		for _, name := range append([]string{m.ID}, m.Names...) {
			other, known := imp.dev[s.dev][name]
			if !known {
				continue
			}
			input, errIn := nano(other.Cost.Input, 1)
			output, errOut := nano(other.Cost.Output, 1)
			ours, writes := rates["output"]
			if errIn != nil || errOut != nil || (input == rates["input"] && (!writes || output == ours)) {
				continue
			}
			imp.report.devDisagreement(s.id, name, rates["input"], ours, input, output)
		}
	}
}
