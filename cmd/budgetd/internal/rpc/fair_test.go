package rpc_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// An account that is ahead of its share of a pool is told so: how many share it, in the
// text and the detail, and until when, in GetQuota. The other one takes what is kept.
func TestFairShare(t *testing.T) {
	policy, err := quota.NewPolicy([]quota.Plan{{Name: "small"}}, []quota.Pool{{Name: "org", Limit: quota.Limit{
		Name: "org", Meter: "tokens", Kind: quota.KindBucket, Rate: quota.Rate{Amount: 1000, Every: 1000 * time.Second}, Burst: 1000, Fair: true,
	}}}, []quota.Account{{Name: "demo", Plan: "small"}, {Name: "other", Plan: "small"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, setup{policy: policy})
	fair := func(account string) map[string]any {
		t.Helper()
		limit := s.ok(t, account, "GetQuota", `{"account":"`+account+`"}`).json["limits"].([]any)[0].(map[string]any)
		found, is := limit["fair"].(map[string]any)
		if !is {
			t.Fatalf("GetQuota of %s has no fair: %v", account, limit)
		}
		return found
	}
	if found := fair("demo"); found["accounts"] != nil || found["aheadUntil"] != nil {
		t.Errorf("nobody has taken, and GetQuota has %v", found)
	}
	s.ok(t, "other", "Reserve", `{"account":"other","amounts":{"tokens":50}}`)
	s.ok(t, "demo", "Reserve", `{"account":"demo","amounts":{"tokens":650}}`)
	refused := s.post(t, "demo", "Reserve", `{"account":"demo","amounts":{"tokens":100}}`)
	refused.want(t, http.StatusTooManyRequests, "resource_exhausted",
		"limit org (pool org): asked 100, 300 left of 1000; retry in 50.0 s; the account is ahead of its fair share, which 2 use now, and leaves a quarter of the limit to the others")
	s.wantHeaders(t, refused, map[string]string{"Retry-After": "50", "Budget-Limited-By": "org"})
	d := refused.json["details"].([]any)[0].(map[string]any)["debug"].(map[string]any)
	if d["reason"] != "REFUSAL_REASON_RATE_LIMITED" || d["sharing"] != float64(2) || d["retryable"] != true || d["pool"] != "org" {
		t.Errorf("the detail: %v", d)
	}
	// Twice 650 s, as two use it, less the 125 s by which an account may be ahead.
	until := s.Now().Add(1175 * time.Second).Format(time.RFC3339)
	if found := fair("demo"); found["accounts"] != float64(2) || found["aheadUntil"] != until {
		t.Errorf("GetQuota of who is ahead has %v, want %s", found, until)
	}
	if found := fair("other"); found["accounts"] != float64(2) || found["aheadUntil"] != nil {
		t.Errorf("GetQuota of who is not has %v", found)
	}
	s.post(t, "demo", "Reserve", `{"account":"demo","amounts":{"tokens":100},"dryRun":true}`).want(t, http.StatusTooManyRequests, "resource_exhausted", "which 2 use now")
	s.ok(t, "other", "Reserve", `{"account":"other","amounts":{"tokens":20}}`)
	// Whom an empty limit refuses is told nothing of shares.
	empty := s.post(t, "other", "Reserve", `{"account":"other","amounts":{"tokens":300}}`)
	d = empty.json["details"].([]any)[0].(map[string]any)["debug"].(map[string]any)
	if _, told := d["sharing"]; told {
		t.Errorf("an account that is not ahead is told of shares: %v", d)
	}
	s.advance(1300 * time.Second)
	if found := fair("other"); found["accounts"] != nil {
		t.Errorf("all are back to their shares, and GetQuota has %v", found)
	}
	s.ok(t, "demo", "Reserve", `{"account":"demo","amounts":{"tokens":1000}}`)
}
