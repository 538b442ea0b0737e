package rpc_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
)

// A quota that is used up says when it resets. Callers are told to wait only
// for as long as they may, and the answer is a 429 or a 403 as it was set.
func TestQuotaExhausted(t *testing.T) {
	const ask = `{"account":"small","amounts":{"pages":20}}`
	detail := func(t *testing.T, a answer) map[string]any {
		t.Helper()
		details := a.json["details"].([]any)
		return details[0].(map[string]any)["debug"].(map[string]any)
	}
	for _, forbidden := range []bool{false, true} {
		t.Run(fmt.Sprintf("forbidden %v", forbidden), func(t *testing.T) {
			s := start(t, setup{config: rpc.Config{QuotaForbidden: forbidden, MaxRetryAfter: 30 * time.Minute}})
			status, code := http.StatusTooManyRequests, "resource_exhausted"
			if forbidden {
				status, code = http.StatusForbidden, "permission_denied"
			}
			retryAfter := func(seconds string) string {
				if forbidden {
					return "" // it belongs to a 429
				}
				return seconds
			}
			s.ok(t, "admin", "Charge", `{"account":"small","amounts":{"pages":90}}`)

			early := s.post(t, "admin", "Reserve", ask) // 12 hours before the day ends
			early.want(t, status, code, "limit pages (account small): asked 20, 10 left of 100; resets at 2026-03-11T00:00:00Z")
			s.wantHeaders(t, early, map[string]string{
				"RateLimit": `"pages";r=10;t=43200`, "RateLimit-Policy": `"pages";q=100;w=86400`, "Budget-Limited-By": "pages", "Retry-After": retryAfter("1800"),
			})
			d := detail(t, early)
			if d["reason"] != "REFUSAL_REASON_QUOTA_EXHAUSTED" || d["retryable"] != nil || d["retryAt"] != nil || d["resetsAt"] != "2026-03-11T00:00:00Z" {
				t.Errorf("too far away to wait for: %v", d)
			}

			s.advance(11*time.Hour + 30*time.Minute) // as long as callers may wait
			late := s.post(t, "admin", "Charge", ask)
			late.want(t, status, code, "retry in 30m0s")
			s.wantHeaders(t, late, map[string]string{"Retry-After": retryAfter("1800")})
			d = detail(t, late)
			if d["retryable"] != true || d["retryAt"] != "2026-03-11T00:00:00Z" || d["resetsAt"] != "2026-03-11T00:00:00Z" {
				t.Errorf("near enough to wait for: %v", d)
			}

			// Whatever else refuses is a 429.
			tooMuch := s.post(t, "admin", "Reserve", `{"account":"small","amounts":{"pages":101}}`)
			tooMuch.want(t, http.StatusTooManyRequests, "resource_exhausted", "never holds more than 100")
			for range 10 {
				s.ok(t, "admin", "Reserve", `{"account":"small"}`)
			}
			bucket := s.post(t, "admin", "Reserve", `{"account":"small"}`)
			bucket.want(t, http.StatusTooManyRequests, "resource_exhausted", "retry in 0.5 s")
			if !strings.Contains(bucket.body, `"resetsAt":"2026-03-10T23:30:05Z"`) {
				t.Errorf("an empty bucket does not say when it is full: %s", bucket.body)
			}

			s.advance(30 * time.Minute)
			s.ok(t, "admin", "Reserve", ask)
		})
	}
}
