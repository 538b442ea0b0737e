package main

import (
	"bytes"
	"fmt"
)

// report is what a reader must see before the catalogue is committed.
type report struct {
	refused, notes [][3]string
	disagree, dev  []string
}

func (r *report) refuse(provider, model, reason string) {
	r.refused = append(r.refused, [3]string{provider, model, reason})
}

func (r *report) note(provider, model, text string) {
	r.notes = append(r.notes, [3]string{provider, model, text})
}

func (r *report) disagreement(provider, model string, input, output, otherInput, otherOutput int64, taken string) {
	r.disagree = append(r.disagree, fmt.Sprintf("| %s | %s | %s / %s | %s / %s | %s |\n",
		provider, model, dollars(input), dollars(output), dollars(otherInput), dollars(otherOutput), taken))
}

func (r *report) devDisagreement(provider, model string, input, output, otherInput, otherOutput int64) {
	r.dev = append(r.dev, fmt.Sprintf("| %s | %s | %s / %s | %s / %s |\n",
		provider, model, dollars(input), dollars(output), dollars(otherInput), dollars(otherOutput)))
}

func dollars(nano int64) string { return fmt.Sprintf("$%.10g", float64(nano)/1e9) }

func (r *report) markdown(version string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Import report of the price catalogue %s\n\nWritten by `estimator/internal/importprices`. Prices are dollars per million tokens, input / output.\n", version)
	fmt.Fprintf(&b, "\n## Refused (%d)\n\nA model that is not in the catalogue is refused or charged at the configured ceiling.\n\n| provider | model | why |\n| --- | --- | --- |\n", len(r.refused))
	for _, x := range r.refused {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", x[0], x[1], x[2])
	}
	fmt.Fprintf(&b, "\n## The sources disagree (%d)\n\n| provider | model | genai-prices | litellm | taken |\n| --- | --- | --- | --- | --- |\n", len(r.disagree))
	for _, x := range r.disagree {
		b.WriteString(x)
	}
	fmt.Fprintf(&b, "\n## models.dev disagrees (%d)\n\nThe catalogue's price is kept: models.dev is the older source.\n\n| provider | model | catalogue | models.dev |\n| --- | --- | --- | --- |\n", len(r.dev))
	for _, x := range r.dev {
		b.WriteString(x)
	}
	fmt.Fprintf(&b, "\n## Notes (%d)\n\n| provider | model | note |\n| --- | --- | --- |\n", len(r.notes))
	for _, x := range r.notes {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", x[0], x[1], x[2])
	}
	return b.Bytes()
}
