package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/simulate"
)

// simulated runs a simulation and returns its exit code and what it printed.
func simulated(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), append([]string{"simulate"}, args...), streams{in: strings.NewReader(""), out: &o, err: &e})
	return code, o.String(), e.String()
}

// TestSimulateTables: tables for people, and a page of the same.
func TestSimulateTables(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	code, out, errs := simulated(t, "naive", "--html", page)
	if code != 0 || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	for _, want := range []string{
		"Failures of a naive limiter (simulate naive --seed 1)\n",
		"failure                                      calls  naive  engine  \n",
		"boundary: ten at 9.9 s and ten at 10.0 s        20     20      10  \n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil || !bytes.Contains(text, []byte(`<section id="naive">`)) {
		t.Errorf("the page has no naive; %v", err)
	}
}

// TestSimulateChecks: every figure is said, and one that differs is exit code 1.
func TestSimulateChecks(t *testing.T) {
	code, out, errs := simulated(t, "naive", "--check")
	if code != 0 || errs != "" || !strings.Contains(out, "ok      naive, read then written: stored: 1, should be 1\n") {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	var o bytes.Buffer
	f := simulateFlags{check: true}
	err := f.run(streams{out: &o}, []simulate.Scenario{{Name: "off", Show: func(simulate.Options) (*simulate.Report, error) {
		return &simulate.Report{Checks: []simulate.Check{{What: "a figure", Got: 2, Rule: simulate.Equal, Want: 1}}}, nil
	}}})
	if err == nil || exitCode(err) != 1 || !strings.Contains(o.String(), "DIFFERS a figure: 2, should be 1\n") {
		t.Errorf("a figure that differs gave %v, %s", err, &o)
	}
	code, out, _ = simulated(t, "naive", "--json")
	var reports []simulate.Report
	if err := json.Unmarshal([]byte(out), &reports); code != 0 || err != nil || len(reports) != 1 || len(reports[0].Checks) == 0 || len(reports[0].Tables) == 0 {
		t.Errorf("exit code %d, %v, %s", code, err, out)
	}
}

func TestSimulateRefusesBadInput(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "code.csv"), []byte("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,1,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{2, "flip", []string{"--flip"}},
		{2, "fleets", []string{"fleets"}},
		{2, "seed", []string{"naive", "--seed", "-1"}},
		{1, "no such file", []string{"holds", "--traces", filepath.Join(folder, "none")}},
		{1, "no two requests", []string{"holds", "--traces", folder}},
		{1, "no such file", []string{"naive", "--html", filepath.Join(folder, "none", "x.html")}},
	} {
		code, _, errs := simulated(t, c.args...)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%q: exit code %d, %q; want %d and %q", c.args, code, errs, c.code, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was written: %v", err)
	}
}
