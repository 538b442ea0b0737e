package rpc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/quota"
)

// The API key's name is the label key, unless the call states one.
func TestLabelOfTheAPIKey(t *testing.T) {
	policy, err := quota.NewPolicy([]quota.Plan{{Name: "p", Limits: []quota.Limit{
		{Name: "by-key", Meter: "pages", Kind: quota.KindQuota, Max: 100, Period: quota.PeriodDay, Per: []string{"key"}},
	}}}, nil, []quota.Account{{Name: "demo", Plan: "p"}, {Name: "other", Plan: "p"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, setup{policy: policy})
	const pages = `{"account":"demo","amounts":{"pages":70}}`
	s.ok(t, "demo", "Charge", pages)
	refused := s.post(t, "demo", "Reserve", pages)
	if refused.status == http.StatusOK || !strings.Contains(refused.body, "key=demo") {
		t.Errorf("beyond the key's quota: %d %s", refused.status, refused.body)
	}
	// Another key, and one that the call states, have counters of their own.
	s.ok(t, "both", "Charge", pages)
	s.ok(t, "demo", "Charge", `{"account":"demo","labels":{"key":"mine"},"amounts":{"pages":70}}`)
	for key, want := range map[string]string{"demo": "key=demo", "both": "key=both"} {
		if view := s.ok(t, key, "GetQuota", `{"account":"demo"}`); !strings.Contains(view.body, want) || !strings.Contains(view.body, `"remaining":"30"`) {
			t.Errorf("GetQuota by %s: %s", key, view.body)
		}
	}
	// A repeat with a renewed key is a repeat.
	const repeated = `{"account":"demo","idempotencyKey":"once","amounts":{"pages":1}}`
	first := s.ok(t, "demo", "Reserve", repeated)
	if again := s.ok(t, "both", "Reserve", repeated); again.text("reservationId") != first.text("reservationId") {
		t.Errorf("repeated: %s, want %s", again.body, first.body)
	}
}
