package budget

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// What is kept is bounded by its size too: the largest is lost first and told of,
// and what is smaller is delivered.
func TestKeptBytes(t *testing.T) {
	seen := func(bytes int) Usage {
		usage := Tokens(&budgetv1.TokenClasses{})
		usage.SeenText = strings.Repeat("x", bytes)
		return usage
	}
	object := func(bytes int) Usage {
		return ProviderUsage("openai", map[string]any{"details": []any{strings.Repeat("x", bytes), 1.0}})
	}
	synctest.Test(t, func(t *testing.T) {
		var delivered, lost []string
		k := &kept{
			most: 10, mostBytes: 100_000, age: time.Hour, hurry: make(chan struct{}, 1),
			deliverOne: func(_ context.Context, call *keptCall) error {
				delivered = append(delivered, call.reservation)
				return nil
			},
			lost: func(l LostRefund) {
				if !errors.Is(l.Err, errTooLarge) {
					t.Errorf("%s is lost: %v", l.Reservation, l.Err)
				}
				lost = append(lost, l.Reservation)
			},
		}
		down := errors.New("no broker")
		for _, one := range []struct {
			name  string
			usage Usage
			kept  bool
		}{
			{"small", Amounts(map[string]int64{"tokens": 7}), true},
			{"60,000", seen(60_000), true},
			{"30,000", object(30_000), true},
			{"70,000", object(70_000), false}, // the largest is the one that comes
			{"20,000", seen(20_000), true},    // loses 60,000
			{"110,000", seen(110_000), false},
		} {
			if got := k.keep(one.name, one.usage, down); got != one.kept {
				t.Errorf("%s: kept %v", one.name, got)
			}
		}
		k.keepReserve(Request{LLM: &budgetv1.LlmCall{Prompt: new(strings.Repeat("x", 90_000))}}, "") // nothing to tell of
		if want := []string{"70,000", "60,000", "110,000"}; !slices.Equal(lost, want) {
			t.Errorf("lost %v, want %v", lost, want)
		}
		if k.bytes > 100_000 || k.bytes < 50_000 {
			t.Errorf("%d bytes are kept", k.bytes)
		}
		if err := k.close(t.Context()); err != nil {
			t.Error(err)
		}
		if want := []string{"small", "30,000", "20,000"}; !slices.Equal(delivered, want) || k.bytes != 0 {
			t.Errorf("delivered %v, want %v; %d bytes are left", delivered, want, k.bytes)
		}
	})
}
