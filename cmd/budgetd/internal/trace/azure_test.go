package trace

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func readTrace(text string) ([]Request, error) {
	r := NewReader(strings.NewReader(text), "t.csv")
	var all []Request
	for {
		request, err := r.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, request)
	}
}

func TestReaderReads(t *testing.T) {
	at := time.Date(2023, 11, 16, 18, 17, 3, 979_960_000, time.UTC)
	want := []Request{
		{Line: 2, At: at, Context: 4808, Generated: 10},
		{Line: 3, At: at.Add(100 * time.Nanosecond), Context: 0, Generated: 100_000_000},
	}
	lines := []string{Header, "2023-11-16 18:17:03.9799600,4808,10", "2023-11-16 18:17:03.9799601,0,100000000"}
	for name, text := range map[string]string{
		"LF":      strings.Join(lines, "\n") + "\n",
		"CRLF":    strings.Join(lines, "\r\n") + "\r\n",
		"no end":  strings.Join(lines, "\n"),
		"CRLF no": strings.Join(lines, "\r\n"),
	} {
		got, err := readTrace(text)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	const good = "2023-11-16 18:17:03.9799600,4808,10\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "t.csv:1: is empty; want the header"},
		{"no header", good, "t.csv:1: is "},
		{"other header", "timestamp,ContextTokens,GeneratedTokens\n" + good, "t.csv:1: is "},
		{"byte order mark", "\ufeff" + Header + "\n" + good, "t.csv:1: is "},
		{"header only", Header + "\n", "t.csv:1: has no request"},
		{"two columns", Header + "\n" + good + "2023-11-16 18:17:03.9799600,1\n", "t.csv:3: has 2 columns"},
		{"four columns", Header + "\n2023-11-16 18:17:03.9799600,1,2,3\n", "t.csv:2: has 4 columns"},
		{"blank line", Header + "\n" + good + "\n", "t.csv:3: has 1 columns"},
		{"six digits", Header + "\n2023-11-16 18:17:03.979960,1,2\n", "t.csv:2: TIMESTAMP"},
		{"eight digits", Header + "\n2023-11-16 18:17:03.97996000,1,2\n", "t.csv:2: TIMESTAMP"},
		{"one digit of hour", Header + "\n2023-11-16 8:17:03.9799600,1,2\n", "t.csv:2: TIMESTAMP"},
		{"no such day", Header + "\n2023-02-29 18:17:03.9799600,1,2\n", "t.csv:2: TIMESTAMP"},
		{"zone", Header + "\n2023-11-16T18:17:03.9799600Z,1,2\n", "t.csv:2: TIMESTAMP"},
		{"goes back", Header + "\n" + good + "2023-11-16 18:17:03.9799599,1,2\n", "t.csv:3: TIMESTAMP \"2023-11-16 18:17:03.9799599\" is before"},
		{"negative", Header + "\n2023-11-16 18:17:03.9799600,-1,2\n", "t.csv:2: ContextTokens \"-1\""},
		{"plus", Header + "\n2023-11-16 18:17:03.9799600,+1,2\n", "t.csv:2: ContextTokens"},
		{"leading zero", Header + "\n2023-11-16 18:17:03.9799600,01,2\n", "t.csv:2: ContextTokens"},
		{"space", Header + "\n2023-11-16 18:17:03.9799600, 1,2\n", "t.csv:2: ContextTokens"},
		{"fraction", Header + "\n2023-11-16 18:17:03.9799600,1,2.5\n", "t.csv:2: GeneratedTokens"},
		{"too many", Header + "\n2023-11-16 18:17:03.9799600,1,100000001\n", "t.csv:2: GeneratedTokens"},
		{"2^64", Header + "\n2023-11-16 18:17:03.9799600,1,18446744073709551616\n", "t.csv:2: GeneratedTokens"},
		{"empty count", Header + "\n2023-11-16 18:17:03.9799600,,2\n", "t.csv:2: ContextTokens"},
		{"quotes", Header + "\n\"2023-11-16 18:17:03.9799600\",1,2\n", "t.csv:2: TIMESTAMP"},
		{"long line", Header + "\n" + strings.Repeat("1", 10_000) + "\n", "t.csv:2: is longer"},
	} {
		_, err := readTrace(c.text)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

// After an error there is nothing more to read.
func TestReaderStopsAtAFault(t *testing.T) {
	r := NewReader(strings.NewReader(Header+"\nx\n2023-11-16 18:17:03.9799600,1,2\n"), "t.csv")
	if _, err := r.Next(); err == nil || err == io.EOF {
		t.Fatalf("the faulty line: %v", err)
	}
	if request, err := r.Next(); err != io.EOF {
		t.Errorf("after it: %v, %v; want io.EOF", request, err)
	}
}

// An error of the file itself is not taken for its end.
func TestReaderPassesOnErrors(t *testing.T) {
	broken := errors.New("disk on fire")
	in := io.MultiReader(strings.NewReader(Header+"\n2023-11-16 18:17:03.9799600,1,2\n2023"), failingReader{broken})
	r := NewReader(in, "t.csv")
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, broken) || !strings.Contains(err.Error(), "t.csv:3:") {
		t.Errorf("%v; want line 3 and %v", err, broken)
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// Whatever is read without an error can be written again as it was.
func FuzzReader(f *testing.F) {
	f.Add([]byte(Header + "\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8"))
	f.Add([]byte(Header + "\n2023-11-16 18:17:03,9799600,4808,10\n"))
	f.Add([]byte(Header + "\n0000-01-01 00:00:00.0000000,0,0\n"))
	f.Add([]byte(Header))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := readTrace(string(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "t.csv:") {
				t.Errorf("the error %q does not begin with the trace and the line", err)
			}
			return
		}
		var b strings.Builder
		b.WriteString(Header + "\n")
		for _, r := range all {
			fmt.Fprintf(&b, "%s,%d,%d\n", r.At.Format(TimeLayout), r.Context, r.Generated)
		}
		plain := strings.ReplaceAll(string(text), "\r\n", "\n")
		if strings.HasSuffix(string(text), "\r") {
			plain = strings.TrimSuffix(plain, "\r")
		}
		if got := b.String(); got != plain && got != plain+"\n" {
			t.Errorf("read %q, which is written as %q", text, got)
		}
	})
}
