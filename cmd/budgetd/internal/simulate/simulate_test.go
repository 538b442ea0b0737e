package simulate

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestFiguresAreAsKnown: every scenario finds what is known, and at seed 1 the same
// figures as ever; its page is well formed and loads nothing.
func TestFiguresAreAsKnown(t *testing.T) {
	for _, scenario := range Scenarios() {
		t.Run(scenario.Name, func(t *testing.T) {
			report, err := scenario.Run(Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Checks) == 0 {
				t.Error("nothing was checked")
			}
			for _, check := range report.Differs() {
				t.Error(check)
			}
			checkGolden(t, report)
			var page, again bytes.Buffer
			if err := errors.Join(WritePage(&page, []*Report{report}), WritePage(&again, []*Report{report})); err != nil {
				t.Fatal(err)
			}
			if page.String() != again.String() {
				t.Error("the same figures gave two pages")
			}
			checkPage(t, page.String(), report)
		})
	}
}

// TestFairAtOtherSeeds: what is checked of shares is so whatever the traffic.
func TestFairAtOtherSeeds(t *testing.T) {
	for seed := range uint64(4) {
		report, err := runFair(Options{Seed: 2 + seed})
		if err != nil {
			t.Fatal(err)
		}
		for _, check := range report.Differs() {
			t.Errorf("seed %d: %s", 2+seed, check)
		}
	}
}

// checkGolden compares the tables with those of the file.
func checkGolden(t *testing.T, report *Report) {
	t.Helper()
	var text strings.Builder
	for _, table := range report.Tables {
		fmt.Fprintf(&text, "%s\n%s\n", table.Title, strings.Join(table.Header, " | "))
		for _, row := range table.Rows {
			cells := make([]string, len(row))
			for i, cell := range row {
				cells[i] = Cell(cell)
			}
			fmt.Fprintln(&text, strings.Join(cells, " | "))
		}
		fmt.Fprintln(&text)
	}
	golden := filepath.Join("testdata", report.Scenario+".txt")
	if *update {
		if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("found\n%s\nwant, as in %s,\n%s", text.String(), golden, want)
	}
}

// checkPage reads a page as XML, which forgives less than HTML.
func checkPage(t *testing.T, page string, report *Report) {
	t.Helper()
	found := map[string]int{}
	in := xml.NewDecoder(strings.NewReader(page))
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the page is not well formed: %v", err)
		}
		element, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		found[element.Name.Local]++
		for _, attribute := range element.Attr {
			switch attribute.Name.Local {
			case "src", "href", "data", "srcset", "action", "poster":
				t.Errorf("<%s> has %s=%q", element.Name.Local, attribute.Name.Local, attribute.Value)
			}
		}
	}
	if found["svg"] != len(report.Charts) || found["table"] != len(report.Tables) || found["li"] != len(report.Checks) {
		t.Errorf("the page has %v, the report %d charts, %d tables, %d checks", found, len(report.Charts), len(report.Tables), len(report.Checks))
	}
	for _, loads := range []string{"script", "link", "iframe", "object", "embed", "img", "image", "base"} {
		if found[loads] > 0 {
			t.Errorf("the page has <%s>", loads)
		}
	}
	for _, loads := range []string{"url(", "@import"} {
		if strings.Contains(page, loads) {
			t.Errorf("the page has %s", loads)
		}
	}
}

// TestPageEscapes: what is text stays text, in tables and in charts.
func TestPageEscapes(t *testing.T) {
	report := &Report{Title: `<script>"a" & 'b'`, Notes: []string{"</p><img>"}, Tables: []Table{{Title: "<table>", Header: []string{"<th>"}, Rows: [][]any{{"<td>"}}}}}
	report.Charts = []Chart{{Title: "<svg>", X: "<a href=''>", Y: "]]>", Lines: []Line{{"</svg>", []float64{1, 2}}}}, {Bars: []Bar{{"<b>", 1}}}}
	report.check("<li>", 1, 2, 0)
	var page bytes.Buffer
	if err := WritePage(&page, []*Report{report}); err != nil {
		t.Fatal(err)
	}
	checkPage(t, page.String(), report)
}

func TestChecks(t *testing.T) {
	r := &Report{}
	r.check("near", 102.9, 100, 0.03)
	r.check("far", 103.1, 100, 0.03)
	r.check("zero", 0, 0, 0)
	r.checkAtLeast("enough", 99, 99)
	r.checkAtLeast("too little", 98.9, 99)
	r.checkAtMost("little", 1, 1)
	r.checkAtMost("too much", 1.1, 1)
	var differs []string
	for _, check := range r.Differs() {
		differs = append(differs, check.String())
	}
	want := []string{"far: 103.1, should be 100 within 3 %", "too little: 98.9, should be at least 99", "too much: 1.1, should be at most 1"}
	if !reflect.DeepEqual(differs, want) {
		t.Errorf("%q differ, want %q", differs, want)
	}
	if got := Cell(-0.04); got != "0.0" {
		t.Errorf("a little below zero is %q", got)
	}
}

// TestClock: what is due is done in order of time, and in the order in which it was
// added at the same instant, whatever is added meanwhile.
func TestClock(t *testing.T) {
	c, order := newClock(), ""
	say := func(word string) func() error {
		return func() error {
			order += word + "@" + c.elapsed().String() + " "
			return nil
		}
	}
	c.at(2*time.Second, say("d"))
	c.at(time.Second, func() error {
		c.at(0, say("b")) // that is over: at once
		c.after(time.Second, say("e"))
		return say("a")()
	})
	c.at(time.Second, say("c"))
	c.each([]time.Duration{0, 3 * time.Second}, say("n"))
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	if want := "n@0s a@1s c@1s b@1s d@2s e@2s n@3s "; order != want {
		t.Errorf("done: %s, want %s", order, want)
	}
	c.after(0, func() error { return io.ErrUnexpectedEOF })
	c.after(time.Second, say("never"))
	if err := c.run(); !errors.Is(err, io.ErrUnexpectedEOF) || c.elapsed() != 3*time.Second {
		t.Errorf("stopped at %s with %v", c.elapsed(), err)
	}
}

// TestPoisson: as many calls as stated come, with the spread of independent ones.
func TestPoisson(t *testing.T) {
	const seconds = 1000
	c, counts := newClock(), make(perSecond, seconds)
	c.each(poisson(seeded(1, 1), 50, seconds*time.Second), func() error {
		counts.count(c)
		return nil
	})
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	mean, variance := counts.mean(0, seconds), 0.0
	for _, count := range counts {
		variance += (count - mean) * (count - mean) / seconds
	}
	if mean < 49 || mean > 51 || variance < 44 || variance > 56 {
		t.Errorf("%.1f a second with variance %.1f, want 50 and 50", mean, variance)
	}
}

// TestMostIn: spans are half open.
func TestMostIn(t *testing.T) {
	at := func(tenths ...int) (instants []time.Duration) {
		for _, tenth := range tenths {
			instants = append(instants, time.Duration(tenth)*100*time.Millisecond)
		}
		return instants
	}
	for _, c := range []struct {
		instants []time.Duration
		want     int
	}{{nil, 0}, {at(0), 1}, {at(0, 9, 10), 2}, {at(0, 0, 9, 10, 11, 18, 19), 4}} {
		if got := mostIn(c.instants, time.Second); got != c.want {
			t.Errorf("%v has %d in a second, want %d", c.instants, got, c.want)
		}
	}
}
