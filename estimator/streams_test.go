package estimator

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/estimator/answer"
	"github.com/budgetd/budgetd/quota"
)

// wireStream is one streamed answer of a provider, event by event.
type wireStream struct {
	Provider   string                  `json:"provider"`
	Model      string                  `json:"model"`
	Events     []json.RawMessage       `json:"events"`
	Tokens     map[string]quota.Tokens `json:"tokens"` // -1: by the text
	Searches   Quantity                `json:"searches"`
	Tier       string                  `json:"tier"`
	Speed      string                  `json:"speed"`
	Ended      bool                    `json:"ended"`
	ToldInput  bool                    `json:"told_input"`
	ToldOutput bool                    `json:"told_output"`
}

// event is what a transport hands over: [DONE] is no JSON.
func (w *wireStream) event(i int) []byte {
	if string(w.Events[i]) == `"[DONE]"` {
		return []byte("[DONE]")
	}
	return w.Events[i]
}

// What package answer takes from a stream is what the normalisers read.
func TestStreams(t *testing.T) {
	e := newEstimator(t, Config{UnknownModel: &Ceiling{Input: usd, Output: usd}})
	wireFiles(t, "streams", func(t *testing.T, example wireStream) {
		layout, ok := answer.LayoutOf(example.Provider)
		if !ok {
			t.Fatal(example.Provider)
		}
		s := answer.NewStream(layout)
		var last answer.Answer
		for i := range example.Events {
			if err := s.Event(example.event(i)); err != nil {
				t.Fatalf("event %d: %v", i, err)
			}
			var err error
			if last, err = s.Answer(); err != nil {
				t.Fatalf("after event %d: %v", i, err)
			}
		}
		var use Use
		if last.Usage != nil {
			var err error
			if use, err = NormalizeUsage(example.Provider, last.Usage); err != nil {
				t.Fatal(err)
			}
		}
		if last.Text != "" {
			seen, err := e.CountSeen(t.Context(), example.Provider, example.Model, last.Text, anyDay)
			told, toldErr := use.Tokens.TotalOutput()
			if err != nil || toldErr != nil {
				t.Fatal(err, toldErr)
			}
			use.Tokens.Output += max(seen-told, 0)
		}
		var counts [numberOfClasses]quota.Tokens
		for i, name := range classNames {
			if counts[i] = example.Tokens[name]; counts[i] < 0 {
				counts[i] = use.Tokens.Output
				if last.Text == "" || use.Tokens.Output < 5 {
					t.Errorf("%d tokens of output by the text %q", use.Tokens.Output, last.Text)
				}
			}
		}
		want := Use{Tokens: TokenClassesOf(counts), Units: Units{Searches: example.Searches}, Tier: example.Tier, Speed: example.Speed}
		if want.Tier == "" && strings.EqualFold(use.Tier, "default") {
			want.Tier = use.Tier
		}
		if use != want || last.Ended != example.Ended || last.ToldInput != example.ToldInput || last.ToldOutput != example.ToldOutput {
			t.Errorf("%+v of %+v, want %+v", use, last, want)
		}
		if example.ToldOutput && example.Ended && last.Text != "" {
			t.Errorf("the provider told all, and %q is to be counted", last.Text)
		}
	})
}

func TestCountSeen(t *testing.T) {
	e := newEstimator(t, Config{})
	text := strings.Repeat("the quick brown fox ", 20)
	exact, err := e.CountSeen(t.Context(), "openai", "gpt-4o-mini", text, anyDay)
	if want := mustCount(t, O200kBase, text); err != nil || exact != quota.Tokens(want) {
		t.Errorf("%d, %v; want %d", exact, err, want)
	}
	for _, model := range []string{"claude-sonnet-4-5", "a model that nobody knows any more"} {
		if got, err := e.CountSeen(t.Context(), "", model, text, anyDay); err != nil || got < 60 || got > 200 {
			t.Errorf("%s: %d, %v", model, got, err)
		}
	}
	var call *CallError
	if _, err := e.CountSeen(t.Context(), "openai", "gpt-4o", strings.Repeat("x", MaxSeenText+1), anyDay); !errors.As(err, &call) || call.Field != "seen_text" {
		t.Errorf("too long: %v", err)
	}
	defer fill(e.counting.long)()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.CountSeen(ended, "openai", "gpt-4o", strings.Repeat("x y", longText), anyDay); !errors.Is(err, ErrBusy) {
		t.Errorf("busy: %v", err)
	}
}
