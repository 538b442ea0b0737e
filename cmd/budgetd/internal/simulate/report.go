package simulate

import (
	"fmt"
	"math"
	"strconv"
)

// Report is what one scenario shows.
type Report struct {
	Scenario string   `json:"scenario"`
	Title    string   `json:"title"`
	Seed     uint64   `json:"seed"`
	Notes    []string `json:"notes,omitempty"` // what a reader of the figures must know
	Tables   []Table  `json:"tables"`
	Charts   []Chart  `json:"-"`
	Checks   []Check  `json:"checks,omitempty"`
}

// Table is figures in rows. A cell is a string, an int or a float64.
type Table struct {
	Title  string   `json:"title"`
	Header []string `json:"header"`
	Rows   [][]any  `json:"rows"`
}

func (t *Table) row(cells ...any) { t.Rows = append(t.Rows, cells) }

// Cell is a cell for people: floats with one digit after the point.
func Cell(cell any) string {
	if number, ok := cell.(float64); ok {
		return strconv.FormatFloat(rounded(number, 10), 'f', 1, 64)
	}
	return fmt.Sprint(cell)
}

// IsFigure says that a cell is a number, which stands to the right.
func IsFigure(cell any) bool {
	_, text := cell.(string)
	return !text
}

// rounded to so many parts of one, and never to a negative zero.
func rounded(f, parts float64) float64 { return math.Round(f*parts)/parts + 0 }

// Check compares a figure with what it is known to be, or with a bound.
type Check struct {
	What   string  `json:"what"`
	Got    float64 `json:"got"`
	Rule   Rule    `json:"rule"`
	Want   float64 `json:"want"`
	Within float64 `json:"within,omitempty"` // share of Want by which Got may differ; 0: not at all
	Holds  bool    `json:"holds"`
}

// Rule is how a figure is compared.
type Rule string

// The rules.
const (
	Equal   Rule = "equal"
	AtLeast Rule = "at least"
	AtMost  Rule = "at most"
)

// String says what was found and what should be.
func (c Check) String() string {
	figure := func(f float64) string { return strconv.FormatFloat(rounded(f, 100), 'f', -1, 64) }
	prefix := ""
	if c.Rule != Equal {
		prefix = string(c.Rule) + " "
	}
	text := fmt.Sprintf("%s: %s, should be %s%s", c.What, figure(c.Got), prefix, figure(c.Want))
	if c.Within > 0 {
		text += fmt.Sprintf(" within %s %%", figure(c.Within*100))
	}
	return text
}

// check notes a figure and what it should be.
func (r *Report) check(what string, got, want, within float64) {
	holds := math.Abs(got-want) <= within*math.Abs(want)
	r.Checks = append(r.Checks, Check{what, got, Equal, want, within, holds})
}

func (r *Report) checkAtLeast(what string, got, least float64) {
	r.Checks = append(r.Checks, Check{what, got, AtLeast, least, 0, got >= least})
}

func (r *Report) checkAtMost(what string, got, most float64) {
	r.Checks = append(r.Checks, Check{what, got, AtMost, most, 0, got <= most})
}

// Differs are the checks that do not hold.
func (r *Report) Differs() []Check {
	var differs []Check
	for _, c := range r.Checks {
		if !c.Holds {
			differs = append(differs, c)
		}
	}
	return differs
}
