package trace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/budgetd/budgetd/quota"
)

func readCalls(from Calls) (all []Call, faults []string, err error) {
	for {
		call, err := from.Next()
		var line *LineError
		switch {
		case err == io.EOF:
			return all, faults, nil
		case errors.As(err, &line):
			faults = append(faults, line.Error())
		case err != nil:
			return all, faults, err
		default:
			all = append(all, call)
		}
	}
}

var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// The two forms say the same.
func TestFormsOfCalls(t *testing.T) {
	want := []Call{
		{
			File: "f", Line: 2, At: noon, Ends: noon.Add(1500 * time.Millisecond), Account: "acme", Labels: map[string]string{"team": "red, blue"},
			Provider: "openai", Model: "gpt-4o", Tokens: true, Input: 900, Output: 55, MaxOutput: 1000,
			Amounts: quota.Amounts{"cost": 20_000_000, "pages": 3}, Held: quota.Amounts{"pages": 5},
		},
		{File: "f", Line: 4, At: noon.Add(500 * time.Microsecond), Ends: noon.Add(time.Minute), Labels: map[string]string{"team": ""}},
	}
	csv := `time,end,duration,account,provider,model,input,output,max_output,labels.team,amounts.cost,amounts.pages,held.pages
2026-03-10T12:00:00Z,,1.5s,acme,openai,gpt-4o,900,55,1000,"red, blue",$0.02,3,5

1773144000.0005009,2026-03-10 13:01:00+01:00,,,,,,,,,,,
`
	json := `
{"time": "2026-03-10T12:00:00Z", "duration": 1.5, "account": "acme", "provider": "openai", "model": "gpt-4o", "input": 900, "output": 55, "max_output": 1000, "labels": {"team": "red, blue"}, "amounts": {"cost": "$0.02", "pages": 3}, "held": {"pages": 5}}

{"time": 1773144000.0005009, "end": "2026-03-10 13:01:00+01:00", "account": null, "labels.team": ""}
`
	for name, from := range map[string]Calls{"CSV": NewCSV(strings.NewReader(csv), "f"), "JSON Lines": NewJSONLines(strings.NewReader(json), "f")} {
		got, faults, err := readCalls(from)
		if err != nil || len(faults) > 0 {
			t.Errorf("%s: %v, %v", name, faults, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A faulty line is told by file, line, field and bound, and the next is read.
func TestFaultsOfCalls(t *testing.T) {
	long := strings.Repeat("x", MaxLineBytes)
	for _, c := range []struct{ line, want string }{
		{`{"time": "yesterday"}`, `f:1: time "yesterday" is not an instant`},
		{`{"time": "1969-12-31T23:59:59Z"}`, "f:1: time \"1969-12-31T23:59:59Z\" is not an instant"},
		{`{"account": "acme"}`, "f:1: time is missing"},
		{`{"time": 1, "input": -1}`, `f:1: input "-1" is not a whole number between 0 and 100000000`},
		{`{"time": 1, "output": 1.5}`, `f:1: output "1.5" is not a whole number`},
		{`{"time": 1, "account": "a/b"}`, `f:1: account "a/b" is not an account name`},
		{`{"time": 5, "end": 4}`, "f:1: end is before time"},
		{`{"time": 5, "end": 100000}`, "f:1: end is more than 23h59m59s after time"},
		{`{"time": 5, "end": 6, "duration": "1s"}`, "f:1: duration is stated beside end"},
		{`{"time": 5, "duration": "25h"}`, `f:1: duration "25h" is not a duration`},
		{`{"time": 5, "amounts": {"pages": 9007199254740992}}`, `f:1: amounts.pages "9007199254740992" is not an amount of pages`},
		{`{"time": 5, "amounts": {"in_flight": 1}}`, "f:1: amounts.in_flight is stated"},
		{`{"time": 5, "labels": {"Team": "x"}}`, "f:1: labels.Team labels"},
		{`{"time": 5, "labels": ["x"]}`, "f:1: labels is not an object"},
		{`{"time": 5, "model": {"a": 1}}`, "f:1: model is a list or an object"},
		{`{"time": 5, "acount": "acme"}`, "f:1: acount is not known; use time"},
		{`{"time": 5} {}`, "f:1: is not one JSON object"},
		{`[1]`, "f:1: is not a JSON object"},
		{long, fmt.Sprintf("f:1: is longer than %d bytes", MaxLineBytes)},
	} {
		got, faults, err := readCalls(NewJSONLines(strings.NewReader(c.line+"\n{\"time\": 7}\n"), "f"))
		if err != nil || len(faults) != 1 || !strings.HasPrefix(faults[0], c.want) {
			t.Errorf("%.60s: %v, %v; want %s", c.line, faults, err, c.want)
		}
		if len(got) != 1 || got[0].Line != 2 {
			t.Errorf("%.60s: the line after it is read as %v", c.line, got)
		}
	}
}

func TestHeadersOfCSV(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "f:1: is empty"},
		{"account,model\n", "f:1: column time is missing"},
		{"time,TIMESTAMP\n", `f:1: column "TIMESTAMP" is there twice`},
		{"time,labels.a,labels.a\n", `f:1: column "labels.a" is there twice`},
		{"time,team\n", `f:1: column "team" is not known; use time`},
		{"time,amounts.A\n", `f:1: column "amounts.A"`},
		{strings.Repeat("a,", maxColumns) + "\n", "f:1: has more than 128 columns"},
	} {
		_, _, err := readCalls(NewCSV(strings.NewReader(c.text+"1,2\n"), "f"))
		if c.text == "" {
			_, _, err = readCalls(NewCSV(strings.NewReader(""), "f"))
		}
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%.40q: %v; want %s", c.text, err, c.want)
		}
	}
	_, faults, err := readCalls(NewCSV(strings.NewReader("\ufefftime,account\n1\n1,\"a\n2,b\n"), "f"))
	if err != nil || len(faults) != 2 || !strings.Contains(faults[0], "f:2: has 1 columns; the header has 2") || !strings.Contains(faults[1], "f:3: is not a line of CSV") {
		t.Errorf("faulty lines: %v, %v", faults, err)
	}
}

// Lines that are late by no more than is allowed are put in order; of equal
// instants the first line comes first. A line that is later is a fault.
func TestOrder(t *testing.T) {
	text := "time,account\n10,a\n12,b\n11,c\n12,d\n10,e\n9,f\n20,g\n"
	got, faults, err := readCalls(Order(NewCSV(strings.NewReader(text), "f"), 2*time.Second))
	order := ""
	for _, call := range got {
		order += call.Account
	}
	if err != nil || order != "aecbdg" {
		t.Errorf("order %q, %v", order, err)
	}
	if len(faults) != 1 || !strings.HasPrefix(faults[0], "f:7: time 1970-01-01T00:00:09Z is more than 2s before a line above it") {
		t.Errorf("faults %v", faults)
	}
}

func TestFilesAreOne(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := write("a.csv", "time,account\n1,a\n3,b\n")
	b := write("b.jsonl", "{\"time\": 0, \"account\": \"c\"}\n{\"time\": 3, \"account\": \"d\"}\n")
	var read int
	files, err := OpenFiles([]string{a, b}, FilesOptions{Read: func(n int) { read += n }})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	got, _, err := readCalls(files)
	order := ""
	for _, call := range got {
		order += call.Account
	}
	size, _ := files.Size()
	if err != nil || order != "cabd" || int64(read) != size || size == 0 {
		t.Errorf("order %q, %d of %d bytes told, %v", order, read, size, err)
	}
	if _, err := OpenFiles([]string{write("c.txt", "")}, FilesOptions{}); err == nil || !strings.Contains(err.Error(), FileKinds) {
		t.Errorf("a file of no known kind: %v", err)
	}
}

// No text makes a reader fail otherwise than by an error that names the file, or
// give a call that is out of its bounds.
func FuzzCalls(f *testing.F) {
	f.Add([]byte("time,input,labels.a,end\n1,2,\"x\",3\n2026-03-10 12:00:00.123,,,\n"))
	f.Add([]byte("{\"time\": 1.5, \"labels\": {\"a\": true}, \"amounts\": {\"cost\": \"$1\"}, \"duration\": \"1h\"}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, from := range []Calls{NewCSV(strings.NewReader(string(text)), "f"), NewJSONLines(strings.NewReader(string(text)), "f")} {
			got, faults, err := readCalls(from)
			for _, fault := range faults {
				if !strings.HasPrefix(fault, "f:") {
					t.Errorf("the fault %q does not begin with the file", fault)
				}
			}
			if err != nil && !strings.HasPrefix(err.Error(), "f:") {
				t.Errorf("the error %q does not begin with the file", err)
			}
			for _, call := range got {
				if call.At.Year() < firstYear || call.At.Year() > lastYear || !call.Ends.IsZero() && (call.Ends.Before(call.At) || call.Ends.Sub(call.At) > MaxDuration) {
					t.Errorf("line %d is from %s to %s", call.Line, call.At, call.Ends)
				}
				if quota.ValidateLabels(call.Labels) != nil || call.Amounts.Validate() != nil || call.Held.Validate() != nil || call.Input < 0 || call.Output < 0 || call.MaxOutput < 0 {
					t.Errorf("line %d is out of bounds: %+v", call.Line, call)
				}
			}
		}
	})
}
