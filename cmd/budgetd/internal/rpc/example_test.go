package rpc_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// The worked example of the documentation, to the token and the second.
func TestWorkedExample(t *testing.T) {
	s := start(t, setup{})
	first := s.ok(t, "demo", "Reserve", `{"account":"demo","labels":{"route":"chat"},"amounts":{"tokens":4000},"lease":"60s"}`)
	if left := first.remaining("tokens"); left != "6000" {
		t.Errorf("after 4,000 of 10,000: %s left, want 6000: %s", left, first.body)
	}
	if got, want := first.text("expiresAt"), "2026-03-10T12:01:00Z"; got != want {
		t.Errorf("expires at %s, want %s", got, want)
	}
	if got, want := first.header.Get("RateLimit"), `"tokens";r=6000;t=24`; got != want {
		t.Errorf("RateLimit: %s, want %s", got, want)
	}
	if got, want := first.header.Get("RateLimit-Policy"), `"tokens";q=10000;w=60`; got != want {
		t.Errorf("RateLimit-Policy: %s, want %s", got, want)
	}

	refused := s.post(t, "demo", "Reserve", `{"account":"demo","labels":{"route":"chat"},"amounts":{"tokens":7000},"lease":"60s"}`)
	if refused.status != http.StatusTooManyRequests || refused.text("code") != "resource_exhausted" {
		t.Fatalf("7,000 of 6,000: %d %s", refused.status, refused.body)
	}
	if got, want := refused.text("message"), "limit tokens (account demo): asked 7000, 6000 left of 10000; retry in 6.0 s"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	for header, want := range map[string]string{
		"Retry-After":       "6",
		"RateLimit":         `"tokens";r=6000;t=24`,
		"RateLimit-Policy":  `"tokens";q=10000;w=60`,
		"Budget-Limited-By": "tokens",
		"Cache-Control":     "no-store",
	} {
		if got := refused.header.Get(header); got != want {
			t.Errorf("%s: %q, want %q", header, got, want)
		}
	}

	refund := s.ok(t, "demo", "Refund", fmt.Sprintf(`{"reservationId":%q,"usage":{"amounts":{"tokens":1600}}}`, first.text("reservationId")))
	if left := refund.remaining("tokens"); left != "8400" {
		t.Errorf("after a Refund that used 1,600: %s left, want 8400: %s", left, refund.body)
	}
	if charged, back := refund.json["charged"].(map[string]any)["tokens"], refund.json["givenBack"].(map[string]any)["tokens"]; charged != "1600" || back != "2400" {
		t.Errorf("charged %v and gave back %v, want 1600 and 2400", charged, back)
	}

	last := s.ok(t, "demo", "Reserve", `{"account":"demo","labels":{"route":"chat"},"amounts":{"tokens":7000},"lease":"60s"}`)
	if left := last.remaining("tokens"); left != "1400" {
		t.Errorf("after 7,000 of 8,400: %s left, want 1400", left)
	}
}

// Waiting for exactly as long as a refusal says is enough, and a moment less is
// not.
func TestRetryAtIsExact(t *testing.T) {
	s := start(t, setup{})
	s.ok(t, "demo", "Reserve", `{"amounts":{"tokens":4000},"lease":"3600s"}`)
	const again = `{"amounts":{"tokens":7000},"lease":"3600s"}`
	if a := s.post(t, "demo", "Reserve", again); a.status != http.StatusTooManyRequests {
		t.Fatalf("at 0 s: %d %s", a.status, a.body)
	}
	s.advance(6*time.Second - time.Microsecond)
	if a := s.post(t, "demo", "Reserve", again); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "1" {
		t.Fatalf("a microsecond early: %d, Retry-After %q: %s", a.status, a.header.Get("Retry-After"), a.body)
	}
	s.advance(time.Microsecond)
	s.ok(t, "demo", "Reserve", again)
}
