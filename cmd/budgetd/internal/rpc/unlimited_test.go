package rpc_test

import (
	"encoding/json"
	"testing"
)

// What is stated and no limit counts is told, by Reserve, its replay and its dry
// run, and by Charge.
func TestUnlimitedMeters(t *testing.T) {
	s := start(t, setup{})
	for _, example := range []struct{ method, body, want string }{
		{"Reserve", `{"account":"demo","amounts":{"tokens":5,"tokns":5,"pges":1},"idempotencyKey":"once"}`, `["pges","tokns"]`},
		{"Reserve", `{"account":"demo","amounts":{"tokens":5,"tokns":5,"pges":1},"idempotencyKey":"once"}`, `["pges","tokns"]`},
		{"Reserve", `{"account":"demo","amounts":{"tokns":5},"dryRun":true}`, `["tokns"]`},
		{"Reserve", `{"account":"demo","amounts":{"tokens":5,"cost":7}}`, `null`},
		{"Charge", `{"account":"demo","amounts":{"tokns":5}}`, `["tokns"]`},
		{"Charge", `{"account":"demo","amounts":{"tokens":5}}`, `null`},
	} {
		got, err := json.Marshal(s.ok(t, "demo", example.method, example.body).json["unlimitedMeters"])
		if err != nil || string(got) != example.want {
			t.Errorf("%s %s: %s, %v; want %s", example.method, example.body, got, err, example.want)
		}
	}
}
