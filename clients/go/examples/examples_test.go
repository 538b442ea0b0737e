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

func TestMain(m *testing.M) { broker.Main(m) }

// run builds an example and runs it with the demo broker and a provider, whose
// answers are as the script says.
func run(t *testing.T, example string, script provider.Script) (output string, p *provider.Provider) {
	t.Helper()
	p = provider.New(providerKey, map[string]provider.Price{"gpt-5.4-mini": {}, "claude-sonnet-4-5": {}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set(provider.Header, script.String())
		p.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	binary := filepath.Join(t.TempDir(), example)
	if out, err := exec.Command("go", "build", "-o", binary, "./"+example).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := broker.Start(t, "--demo")
	command := exec.CommandContext(t.Context(), binary)
	command.Env = append(os.Environ(), "BUDGETD_URL="+b.URL, "BUDGETD_KEY=demo",
		"OPENAI_BASE_URL="+server.URL+"/v1", "OPENAI_API_KEY="+providerKey,
		"ANTHROPIC_BASE_URL="+server.URL, "ANTHROPIC_API_KEY="+providerKey)
	if script.Steps {
		go func() {
			for range 1 + 3 { // its first event and three pieces
				p.Step(script.ID)
			}
		}()
	}
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out), p
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

// sorted has the lines in order: the Refund is reported while the program goes on.
func sorted(text string) string {
	lines := strings.SplitAfter(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}
