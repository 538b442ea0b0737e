package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
	"github.com/budgetd/budgetd/reservation/holdlab/traces"
)

func writeTrace(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTracesMerge(t *testing.T) {
	line := func(second, tokens int) string {
		return fmt.Sprintf("2023-11-16 18:00:%02d.0000000,%d,0\n", second, tokens)
	}
	a := writeTrace(t, "a.csv", trace.Header+"\n"+line(1, 10)+line(3, 11)+line(9, 12))
	b := writeTrace(t, "b.csv", trace.Header+"\n"+line(0, 20)+line(3, 21))
	for most, want := range map[int64]string{
		0: "1:2=20 0:2=10 0:3=11 1:3=21 0:4=12 ",
		3: "1:2=20 0:2=10 0:3=11 ",
	} {
		traces, err := OpenTraces([]string{a, b}, most)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for {
			r, err := traces.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got += fmt.Sprintf("%d:%d=%d ", r.Trace, r.Line, r.Context)
		}
		if got != want {
			t.Errorf("%d requests: %q, want %q", most, got, want)
		}
		if err := traces.Close(); err != nil {
			t.Error(err)
		}
	}
	survey, err := SurveyTraces([]string{a, b}, 0)
	if err != nil || survey.Requests != 5 || survey.Tokens != 74 || survey.Span() != 9*time.Second {
		t.Errorf("survey %+v, %v; want 5 requests, 74 tokens, 9 s", survey, err)
	}
}

// A fault at the end is found before anything is sent.
func TestSurveyFindsTheLastFault(t *testing.T) {
	var b bytes.Buffer
	if err := traces.Generate(&b, traces.Code, 3, 500); err != nil {
		t.Fatal(err)
	}
	path := writeTrace(t, "code.csv", b.String()+"nonsense\r\n")
	_, err := SurveyTraces([]string{path}, 0)
	if err == nil || !strings.Contains(err.Error(), "code.csv:502: ") {
		t.Errorf("%v; want a fault in line 502", err)
	}
	if _, err := SurveyTraces([]string{path + ".not"}, 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
