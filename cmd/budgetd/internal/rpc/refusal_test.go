package rpc_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/rpc"
	"github.com/budgetd/budgetd/reservation"
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

			// What is only held comes back: a 429 that is worth another try.
			s.advance(30 * time.Minute) // a new day
			held := s.ok(t, "admin", "Reserve", `{"account":"small","amounts":{"pages":90}}`)
			inTheWay := s.post(t, "admin", "Reserve", ask)
			inTheWay.want(t, http.StatusTooManyRequests, "resource_exhausted", "asked 20, 10 left of 100 while open calls hold 90; retry in 1.0 s")
			s.wantHeaders(t, inTheWay, map[string]string{"Retry-After": "1", "Budget-Limited-By": "pages"})
			d = detail(t, inTheWay)
			if d["reason"] != "REFUSAL_REASON_QUOTA_HELD" || d["retryable"] != true || d["retryAt"] != "2026-03-11T00:00:01Z" || d["resetsAt"] != "2026-03-12T00:00:00Z" {
				t.Errorf("held by open calls: %v", d)
			}
			s.ok(t, "admin", "Refund", fmt.Sprintf(`{"reservationId":%q,"unused":true}`, held.text("reservationId")))
			s.ok(t, "admin", "Reserve", ask)

			// Whatever else refuses is a 429.
			tooMuch := s.post(t, "admin", "Reserve", `{"account":"small","amounts":{"pages":101}}`)
			tooMuch.want(t, http.StatusTooManyRequests, "resource_exhausted", "never holds more than 100")
			for range 9 { // one is taken
				s.ok(t, "admin", "Reserve", `{"account":"small"}`)
			}
			bucket := s.post(t, "admin", "Reserve", `{"account":"small"}`)
			bucket.want(t, http.StatusTooManyRequests, "resource_exhausted", "retry in 0.5 s")
			if !strings.Contains(bucket.body, `"resetsAt":"2026-03-11T00:00:05Z"`) {
				t.Errorf("an empty bucket does not say when it is full: %s", bucket.body)
			}
		})
	}
}

// Callers that a quota refused are told instants of their own, none before it resets
// and none beyond what callers are told to wait; the headers of the limit say what is
// true of the limit.
func TestRefusedCallersAreSpread(t *testing.T) {
	s := start(t, setup{config: rpc.Config{MaxRetryAfter: 30*time.Minute + 20*time.Second}, broker: reservation.Config{RetryJitter: 10}})
	s.ok(t, "admin", "Charge", `{"account":"small","amounts":{"pages":100}}`)
	s.advance(11*time.Hour + 30*time.Minute)
	told, instants := map[string]bool{}, map[any]bool{}
	for range 100 {
		no := s.post(t, "admin", "Reserve", `{"account":"small","amounts":{"pages":1}}`)
		no.want(t, http.StatusTooManyRequests, "resource_exhausted", "retry in 30m")
		s.wantHeaders(t, no, map[string]string{"RateLimit": `"pages";r=0;t=1800`, "RateLimit-Policy": `"pages";q=100;w=86400`, "Budget-Limited-By": "pages"})
		wait, err := strconv.Atoi(no.header.Get("Retry-After"))
		if err != nil || wait < 1800 || wait > 1820 {
			t.Fatalf("Retry-After: %s, want 1800 to 1820", no.header.Get("Retry-After"))
		}
		told[no.header.Get("Retry-After")] = true
		d := no.json["details"].([]any)[0].(map[string]any)["debug"].(map[string]any)
		if d["resetsAt"] != "2026-03-11T00:00:00Z" || d["retryable"] != true {
			t.Fatalf("%v, want it to reset at midnight", d)
		}
		instants[d["retryAt"]] = true
	}
	if len(told) < 10 || len(instants) < 90 {
		t.Errorf("100 callers are told %d waits and %d instants", len(told), len(instants))
	}
}
