package posting_test

import (
	"encoding/json"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/ledger/internal/posting"
)

func TestLabels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.MapOfN(rapid.String(), rapid.String(), 0, 32).Draw(t, "labels")
		text, err := posting.EncodeLabels(labels)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid([]byte(text)) {
			t.Fatalf("not JSON: %s", text)
		}
		got, err := posting.DecodeLabels(text)
		if err != nil || !maps.Equal(got, labels) {
			t.Fatalf("%q came back as %q, %v", labels, got, err)
		}
	})
	if _, err := posting.DecodeLabels("["); err == nil {
		t.Error("a broken text was read")
	}
}
