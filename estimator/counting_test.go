package estimator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/estimator/encoding"
	"github.com/budgetd/budgetd/estimator/family"
)

// fill takes every place and returns what gives them back.
func fill(places chan struct{}) (free func()) {
	for range cap(places) {
		places <- struct{}{}
	}
	return func() {
		for range cap(places) {
			<-places
		}
	}
}

func TestCountingIsBounded(t *testing.T) {
	e := newEstimator(t, Config{})
	if _, err := e.Estimate(Call{Model: "gpt-4o", Prompt: "load"}, anyDay); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	short, long := strings.Repeat("short ", 10), strings.Repeat("long ", longText)
	for _, model := range []string{"gpt-4o", "claude-sonnet-4-5"} {
		ask := func(ctx context.Context, prompt string) error {
			_, err := e.EstimateContext(ctx, Call{Model: model, Prompt: prompt, MaxOutputTokens: tokens(1)}, anyDay)
			return err
		}
		free := fill(e.counting.long)
		if err := ask(ended, long); !errors.Is(err, ErrBusy) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a long text without a place: %v", model, err)
		}
		if err := ask(ended, short); err != nil {
			t.Errorf("%s: long texts keep a short one waiting: %v", model, err)
		}
		free()
		free = fill(e.counting.short)
		if err := ask(ended, short); !errors.Is(err, ErrBusy) {
			t.Errorf("%s: a short text without a place: %v", model, err)
		}
		free()
		if err := ask(ended, long); !errors.Is(err, ErrBusy) {
			t.Errorf("%s: a long text with a place, too late: %v", model, err)
		}
		if err := ask(t.Context(), long); err != nil {
			t.Errorf("%s: a long text afterwards: %v", model, err)
		}
		if n := len(e.counting.short) + len(e.counting.long); n != 0 {
			t.Errorf("%s: %d places were not given back", model, n)
		}
	}
}

func TestKnownTextsAreNotCountedAgain(t *testing.T) {
	e := newEstimator(t, Config{})
	text := strings.Repeat("a message that comes again ", 20)
	want := map[string]Figures{}
	models := []string{"gpt-4o", "gpt-4", "claude-sonnet-4-5", "llama-3.3-70b"}
	for _, model := range models {
		got, err := e.Estimate(Call{Model: model, Prompt: text, MaxOutputTokens: tokens(1)}, anyDay)
		if err != nil {
			t.Fatal(err)
		}
		want[model] = got.Input
	}
	if want["gpt-4o"] == want["claude-sonnet-4-5"] || want["claude-sonnet-4-5"] == want["llama-3.3-70b"] {
		t.Fatalf("the models count alike: %v", want)
	}
	defer fill(e.counting.short)()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for key, f := range e.counting.known.young {
		by := counter{encoding: key.encoding}
		for _, rule := range family.Rules() {
			if rule.Family == key.family {
				by.rule = rule
			}
		}
		if again, err := e.counting.figures(ended, by, text); err != nil || again != f {
			t.Errorf("a known text: %v, %v; want %v", again, err, f)
		}
		if _, err := e.counting.figures(ended, by, text+"x"); !errors.Is(err, ErrBusy) {
			t.Errorf("another text: %v", err)
		}
	}
	if n := len(e.counting.known.young); n != len(models) {
		t.Errorf("%d texts are known, want one for each of %d models", n, len(models))
	}
}

func TestKnownTextsAreBounded(t *testing.T) {
	var c countCache
	c.init()
	first, _ := c.key(counter{}, strings.Repeat("x", minKnownBytes))
	c.put(first, Figures{1, 2, 3})
	for i := range 3 * maxKnown {
		c.put(countKey{text: [2]uint64{uint64(i), 1}}, Figures{})
		if i%100 == 0 {
			if _, ok := c.get(first); !ok {
				t.Fatalf("a text that is asked for again and again was forgotten after %d others", i)
			}
		}
		if n := len(c.young) + len(c.old); n > maxKnown {
			t.Fatalf("%d texts are remembered, at most %d", n, maxKnown)
		}
	}
	if _, ok := c.get(countKey{text: [2]uint64{0, 1}}); ok {
		t.Error("the oldest text was not forgotten")
	}
	if _, keep := c.key(counter{}, strings.Repeat("x", minKnownBytes-1)); keep {
		t.Error("a short text is remembered")
	}
}

// BenchmarkKnownText compares counting a text with looking it up.
func BenchmarkKnownText(b *testing.B) {
	e := newEstimator(b, Config{})
	loaded, err := encoding.Load(O200kBase)
	if err != nil {
		b.Fatal(err)
	}
	by := counter{encoding: loaded}
	for _, size := range []int{minKnownBytes, 1 << 10, 16 << 10} {
		text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", size/45+1)[:size]
		b.Run(fmt.Sprintf("count/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := by.count(b.Context(), text); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("known/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.counting.figures(b.Context(), by, text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
