package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

const there = "../../" // the folder of package family

// The embedded figures are those of the committed counts, the corpus and the
// rules as they are: none can change alone.
func TestMeasuredFiguresAreOfTheseRules(t *testing.T) {
	counts, err := readCounts(there + countsFile)
	if err != nil {
		t.Fatal(err)
	}
	want, err := table(counts)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(there + measuredFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("measured.json is out of date: run go generate in estimator/family")
	}
}

func TestCountsOfAnotherCorpusAreRefused(t *testing.T) {
	data, err := os.ReadFile(there + countsFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	fields := strings.Split(lines[1], "\t")
	fields[1] = strings.Repeat("0", len(fields[1]))
	for name, tt := range map[string]struct{ text, problem string }{
		"a text is missing": {strings.Join(lines[:len(lines)-2], ""), "the corpus has"},
		"another text":      {lines[0] + strings.Join(fields, "\t") + strings.Join(lines[2:], ""), "line 2 is not of the text"},
		"no count":          {lines[0] + strings.Replace(lines[1], "\t2\t", "\tx\t", 1) + strings.Join(lines[2:], ""), "is no count"},
	} {
		path := t.TempDir() + "/counts.tsv"
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readCounts(path); err == nil || !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%s: %v, want an error with %q", name, err, tt.problem)
		}
	}
}
