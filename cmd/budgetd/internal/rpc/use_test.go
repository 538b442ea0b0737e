package rpc

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/budgetd/budgetd/estimator"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// Every count of a message reaches the class or unit of its own name.
func TestUseIn(t *testing.T) {
	n := func(i int64) *int64 { return proto.Int64(i) }
	got, err := useIn("usage", &budgetv1.TokenClasses{
		Input: n(1), InputAudio: n(2), InputImage: n(3), InputVideo: n(4),
		CacheRead: n(5), CacheReadAudio: n(6), CacheReadImage: n(7), CacheWrite: n(8), CacheWriteHour: n(9),
		Output: n(10), OutputAudio: n(11), OutputImage: n(12), OutputVideo: n(13), Reasoning: n(14),
	}, &budgetv1.BilledUnits{Images: n(1), Milliseconds: n(2), Pages: n(3), Searches: n(4), Requests: n(5)},
		&budgetv1.ServedAs{Tier: "flex", Speed: "fast"})
	if err != nil {
		t.Fatal(err)
	}
	for i, count := range got.Tokens.List() {
		if int(count) != i+1 {
			t.Errorf("class %d counts %d: %+v", i, count, got.Tokens)
		}
	}
	for i, count := range got.Units.List() {
		if int(count) != i+1 {
			t.Errorf("unit %d counts %d: %+v", i, count, got.Units)
		}
	}
	if got.Tier != "flex" || got.Speed != "fast" {
		t.Errorf("served as %q and %q", got.Tier, got.Speed)
	}
	if got, err := useIn("usage", nil, &budgetv1.BilledUnits{Pages: n(3)}, nil); err != nil || *got != (estimator.Use{Units: estimator.Units{Pages: 3}}) {
		t.Errorf("pages alone: %+v, %v", got, err)
	}
	if got, err := useIn("usage", nil, nil, nil); got != nil || err != nil {
		t.Errorf("nothing: %+v, %v", got, err)
	}
	if _, err := useIn("usage", nil, nil, &budgetv1.ServedAs{}); err == nil {
		t.Error("a tier of nothing was taken")
	}
}
