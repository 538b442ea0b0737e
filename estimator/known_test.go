package estimator

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/budgetd/budgetd/estimator/family"
)

// The Cookbook's example conversation, whose prompt tokens it compares with
// the API's own count.
func TestChatCountsOfTheCookbook(t *testing.T) {
	messages := []Message{
		{Role: "system", Content: "You are a helpful, pattern-following assistant that translates corporate jargon into plain English."},
		{Role: "system", Name: "example_user", Content: "New synergies will help drive top-line growth."},
		{Role: "system", Name: "example_assistant", Content: "Things working well together will increase revenue."},
		{Role: "system", Name: "example_user", Content: "Let's circle back when we have more bandwidth to touch base on opportunities for increased leverage."},
		{Role: "system", Name: "example_assistant", Content: "Let's talk later when we're less busy about how to do better."},
		{Role: "user", Content: "This late pivot means we don't have time to boil the ocean for the client deliverable."},
	}
	body := map[string]any{"max_tokens": 1.0}
	list := []any{}
	for _, m := range messages {
		message := map[string]any{"role": m.Role, "content": m.Content}
		if m.Name != "" {
			message["name"] = m.Name
		}
		list = append(list, message)
	}
	body["messages"] = list
	e := newEstimator(t, Config{})
	for model, want := range map[string]int64{
		"gpt-3.5-turbo": 129, "gpt-4-0613": 129, "gpt-4": 129, "gpt-4o": 124, "gpt-4o-mini": 124,
	} {
		for name, call := range map[string]Call{
			"messages":         {Model: model, Messages: messages, MaxOutputTokens: tokens(1)},
			"provider_request": {Model: model, Provider: "openai", ProviderRequest: body},
		} {
			got, err := e.Estimate(call, anyDay)
			if err != nil {
				t.Fatal(err)
			}
			if int64(got.Input.Ceiling) != want || !got.Exact {
				t.Errorf("%s of %s: %d tokens, exact %t; the Cookbook says %d", name, model, got.Input.Ceiling, got.Exact, want)
			}
		}
	}
}

// A broker starts without loading an encoding. The check needs a process in
// which nothing else has counted, so the test runs itself again.
func TestNewLoadsNoEncoding(t *testing.T) {
	const child = "BUDGETD_TEST_COLD_ESTIMATOR"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestNewLoadsNoEncoding$")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	e := newEstimator(t, Config{})
	loaded := func() (n int) {
		for _, e := range []Encoding{O200kBase, CL100kBase, P50kBase, R50kBase} {
			if e.Loaded() {
				n++
			}
		}
		return n
	}
	if _, err := e.Estimate(Call{Model: "gpt-4o", InputTokens: tokens(10)}, anyDay); err != nil {
		t.Fatal(err)
	}
	if n := loaded(); n != 0 {
		t.Fatalf("%d encodings loaded before any text was counted", n)
	}
	if _, err := e.Estimate(Call{Model: "gpt-4", Prompt: "Hello"}, anyDay); err != nil {
		t.Fatal(err)
	}
	if n := loaded(); n != 1 {
		t.Fatalf("%d encodings loaded for one model, want 1", n)
	}
}

func TestConcurrentEstimates(t *testing.T) {
	e := newEstimator(t, Config{})
	models := []string{"gpt-4o", "gpt-4", "claude-sonnet-4-5", "text-davinci-003", "davinci"}
	text := strings.Repeat("some words, and a lot of aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ", 50)
	want := map[string]Estimate{}
	for _, m := range models {
		got, err := e.Estimate(Call{Model: m, Prompt: text, MaxOutputTokens: tokens(5)}, anyDay)
		if err != nil {
			t.Fatal(err)
		}
		want[m] = got
	}
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			m := models[i%len(models)]
			got, err := e.Estimate(Call{Model: m, Prompt: text, MaxOutputTokens: tokens(5)}, anyDay)
			if err != nil || got.Input != want[m].Input || got.Cost != want[m].Cost {
				t.Errorf("%s: %d tokens, %v; alone it was %d", m, got.Input.Ceiling, err, want[m].Input.Ceiling)
			}
		})
	}
	wg.Wait()
}

// The rule of package family, on pieces of the real pre-tokenizer.
func TestBounds(t *testing.T) {
	words := "The quick brown fox jumps over the lazy dog."
	base := int64(mustCount(t, O200kBase, words))
	for _, tt := range []struct {
		name, model, text string
		want              int64
	}{
		{"words at 1.4 and a sign at 1.2, rounded up, and 2", "llama-3.3-70b", words, ((base-1)*14+12+9)/10 + 2},
		{"words at 1.8 and a sign at 2.7, rounded up, and 2", "claude-sonnet-4-5", words, ((base-1)*18+10+9)/10 + 2}, // a sign is one byte
		{"digits by the byte", "qwen3-32b", "1234567", 7 + 2},
		{"digits by three", "deepseek-chat", "1234567", 3 + 2},
		{"wide digits by the byte", "deepseek-chat", "１２", 6 + 2},
		{"8 spaces a token", "gemma-3", strings.Repeat(" ", 17), 3 + 2},
		{"other white space by the byte", "gemma-3", "\n\n\n", 3 + 2},
		{"a row of one sign: 3 bytes a token", "deepseek-chat", strings.Repeat("=", 48), 16 + 2},
		{"nothing", "llama", "", 0},
	} {
		bounds, err := Bounds(tt.text, family.Of(tt.model))
		if err != nil {
			t.Fatal(err)
		}
		got := bounds[0]
		if int64(got.Ceiling) != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got.Ceiling, tt.want)
		}
		if got.Floor > got.Expected || got.Expected > got.Ceiling {
			t.Errorf("%s: %+v is not in order", tt.name, got)
		}
	}
}

func BenchmarkEstimate(b *testing.B) {
	e := newEstimator(b, Config{})
	call := Call{Model: "gpt-4o-mini", Messages: []Message{{Content: "Summarise the report of last week in three sentences."}}, MaxOutputTokens: tokens(300)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Estimate(call, anyDay); err != nil {
			b.Fatal(err)
		}
	}
}
