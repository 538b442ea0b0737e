package rpc_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// Whoever goes on asking is banned: a 429 that says so and until when, and GetQuota
// shows it.
func TestBanned(t *testing.T) {
	policy, err := quota.NewPolicy([]quota.Plan{{Name: "small", Limits: []quota.Limit{{
		Name: "pages", Meter: "pages", Kind: quota.KindBucket, Rate: quota.Rate{Amount: 10, Every: 10 * time.Second}, CountRefusals: true,
		Ban: quota.Ban{Refusals: 2, Within: time.Minute, For: 10 * time.Minute},
	}}}}, nil, []quota.Account{{Name: "demo", Plan: "small"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, setup{policy: policy})
	const ask = `{"account":"demo","amounts":{"pages":8}}`
	s.ok(t, "demo", "Reserve", ask)
	s.post(t, "demo", "Reserve", ask).want(t, http.StatusTooManyRequests, "resource_exhausted", "asked 8, 0 left of 10; retry in 8.0 s")
	banned := s.post(t, "demo", "Reserve", ask)
	banned.want(t, http.StatusTooManyRequests, "resource_exhausted", "limit pages (account demo): banned for 10min, after it refused 2 calls within 1min; retry in 10m0s")
	s.wantHeaders(t, banned, map[string]string{"Retry-After": "600", "Budget-Limited-By": "pages"})
	d := banned.json["details"].([]any)[0].(map[string]any)["debug"].(map[string]any)
	if d["reason"] != "REFUSAL_REASON_BANNED" || d["retryable"] != true {
		t.Errorf("the detail: %v", d)
	}
	limit := s.ok(t, "demo", "GetQuota", `{"account":"demo"}`).json["limits"].([]any)[0].(map[string]any)
	if limit["countRefusals"] != true || limit["bannedUntil"] == nil || limit["ban"].(map[string]any)["forMs"] != "600000" {
		t.Errorf("GetQuota has %v", limit)
	}
	s.advance(10 * time.Minute)
	s.ok(t, "demo", "Reserve", ask)
}
