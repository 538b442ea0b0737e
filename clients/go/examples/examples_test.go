package examples

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/estimator"
	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/provider"
)

const providerKey = "provider-key-0123456789"

// binaries is where the examples are built, each once.
var binaries string

func TestMain(m *testing.M) {
	var err error
	if binaries, err = os.MkdirTemp("", "budgetd-examples-*"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(binaries)
	broker.Remove()
	os.Exit(code)
}

// run builds an example and runs it with the demo broker and a provider, whose
// answers are as the script says.
func run(t *testing.T, example string, script provider.Script) (output string, p *provider.Provider) {
	t.Helper()
	output, code, p := runWith(t, example, script)
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, output)
	}
	return output, p
}

// runWith is run with more of the environment, whatever the exit code.
func runWith(t *testing.T, example string, script provider.Script, environment ...string) (output string, code int, p *provider.Provider) {
	t.Helper()
	p = provider.New(providerKey, map[string]provider.Price{"gpt-5.4-mini": {}, "claude-sonnet-4-5": {}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set(provider.Header, script.String())
		p.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	binary := filepath.Join(binaries, example)
	if _, err := os.Stat(binary); err != nil {
		if out, err := exec.Command("go", "build", "-o", binary, "./"+example).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	b := broker.Start(t, "--demo")
	command := exec.CommandContext(t.Context(), binary)
	command.Env = append(os.Environ(), "BUDGETD_URL="+b.URL, "BUDGETD_KEY=demo",
		"OPENAI_BASE_URL="+server.URL+"/v1", "OPENAI_API_KEY="+providerKey,
		"ANTHROPIC_BASE_URL="+server.URL, "ANTHROPIC_API_KEY="+providerKey)
	command.Env = append(command.Env, environment...)
	if script.Steps {
		go func() {
			for range 1 + 3 { // its first event and three pieces
				p.Step(script.ID)
			}
		}()
	}
	out, err := command.CombinedOutput()
	if err != nil && command.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), command.ProcessState.ExitCode(), p
}

// A call that fails says who refused, why, and what to do, and its code says
// whether to try again later.
func TestFailuresAreExplained(t *testing.T) {
	twice := provider.Fault{Status: http.StatusServiceUnavailable, RetryAfterMS: "1"}
	for _, c := range []struct {
		name, example string
		faults        []provider.Fault
		environment   string
		code          int
		says          []string
	}{
		{"the provider refuses", "openai", []provider.Fault{{Status: http.StatusBadRequest}}, "", 1, []string{"the provider answered 400: ", "Look at what was sent."}},
		{"the provider is overloaded", "anthropic", []provider.Fault{twice, twice, twice}, "", 75, []string{"the provider answered 503: ", "Try again later."}},
		{"the provider's key", "streaming", nil, "OPENAI_API_KEY=another", 1, []string{"the provider answered 401: ", "Check the key"}},
		{"the budget's key", "anthropic", nil, "BUDGETD_KEY=another", 1, []string{"the budget answered 403: ", "Check the key"}},
		{"nobody answers", "openai", nil, "OPENAI_BASE_URL=http://127.0.0.1:1/v1", 75, []string{"the call got no answer: ", "Check the provider's address"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, code, _ := runWith(t, c.example, provider.Script{ID: "fails", Faults: c.faults}, c.environment)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.says {
				if !strings.Contains(out, want) {
					t.Errorf("%q, want %q in it", out, want)
				}
			}
			if strings.Contains(out, "without a reason") {
				t.Errorf("what was said is missing: %q", out)
			}
		})
	}
}

func TestOpenAI(t *testing.T) {
	out, _ := run(t, "openai", provider.Script{Tokens: provider.Tokens{Input: 11, Output: 40}})
	if want := "Hello!\ncharged 51 tokens, gave back 9"; !strings.HasPrefix(sorted(out), want) {
		t.Errorf("%q, want %q and more", out, want)
	}
}

func TestAnthropic(t *testing.T) {
	out, p := run(t, "anthropic", provider.Script{Tokens: provider.Tokens{Input: 11, Output: 40}})
	if !strings.HasPrefix(sorted(out), "Hello!\ncharged 51 tokens, gave back ") {
		t.Error(out)
	}
	// It asked for 20,000 tokens of output, and was granted what the bucket has.
	if calls := p.Calls(); len(calls) != 1 {
		t.Errorf("%+v", calls)
	}
}

func TestStreaming(t *testing.T) {
	script := provider.Script{ID: "count", Steps: true, Pieces: []string{"one", " two", " three", " four", " five"}, Tokens: provider.Tokens{Input: 13}}
	out, _ := run(t, "streaming", script)
	prompt, err := estimator.Count(estimator.O200kBase, "Count to a thousand.")
	if err != nil {
		t.Fatal(err)
	}
	const frame, seen = 3 + 1 + 3, 3 // the Cookbook's tokens of a message, its role and the answer
	if want := fmt.Sprintf("charged %d tokens, gave back ", int(prompt)+frame+seen); !strings.Contains(out, "one two three ...\n") || !strings.Contains(out, want) {
		t.Errorf("%q, want %q", out, want)
	}
}

// Each step takes 1,100 of the envelope's 4,000 tokens: the third leaves less than a
// fifth, and the summary is the last.
func TestAgent(t *testing.T) {
	out, p := run(t, "agent", provider.Script{Tokens: provider.Tokens{Input: 800, Output: 300}})
	want := `step 1: Hello!
2900 tokens left
step 2: Hello!
1800 tokens left
step 3: Hello!
wound down with 700 tokens left: Hello!
`
	if out != want {
		t.Errorf("%q, want %q", out, want)
	}
	if n := len(p.Calls()); n != 4 {
		t.Errorf("the provider was asked %d times, want 4", n)
	}
}

// sorted has the lines in order: the Refund is reported while the program goes on.
func sorted(text string) string {
	lines := strings.SplitAfter(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}
