package rpc_test

import (
	"fmt"
	"strings"
	"testing"
)

// A model call from its estimate to its place in the ledger, in every form in
// which its usage may be reported.
func TestModelCall(t *testing.T) {
	s := start(t, setup{})
	estimate := s.ok(t, "demo", "Estimate", `{"llm":{"model":"gpt-4o-mini","prompt":"Hello","maxOutputTokens":3000}}`)
	said, _ := estimate.json["estimate"].(map[string]any)
	if said["maxOutputTokens"] != "3000" || said["method"] != "ESTIMATE_METHOD_TOKENIZER" || said["bound"] != "ESTIMATE_BOUND_EXACT" ||
		said["encoding"] != "o200k_base" || said["provider"] != "openai" || said["catalogueModel"] != "gpt-4o-mini" || said["priceVersion"] == nil {
		t.Errorf("%s", estimate.body)
	}
	for form, usage := range map[string]string{
		"classes":        `{"tokens":{"input":200,"cacheRead":800,"cacheWrite":0,"output":100,"reasoning":0}}`,
		"usage object":   `{"provider":"openai","providerUsage":{"prompt_tokens":1000,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":800}}}`,
		"amounts beside": `{"amounts":{"pages":2},"tokens":{"input":200,"cacheRead":800,"output":100}}`,
	} {
		grant := s.ok(t, "demo", "Reserve", `{"llm":{"model":"gpt-4o-mini","inputTokens":1000,"maxOutputTokens":500},"lease":"60s"}`)
		if fmt.Sprint(grant.json["estimate"]) == "" || grant.text("priceVersion") == "" {
			t.Errorf("%s: %s", form, grant.body)
		}
		id := grant.text("reservationId")
		refund := s.ok(t, "demo", "Refund", fmt.Sprintf(`{"reservationId":%q,"usage":%s}`, id, usage))
		charged, _ := refund.json["charged"].(map[string]any)
		// gpt-4o-mini costs $0.15, cached $0.075, output $0.60 per million:
		// 200 x 150 + 800 x 75 + 100 x 600 nano-USD.
		if charged["cost"] != "150000" || charged["tokens"] != "1100" || charged["input_tokens"] != "1000" || charged["output_tokens"] != "100" {
			t.Errorf("%s: charged %v", form, charged)
		}
		if form == "amounts beside" && charged["pages"] != "2" {
			t.Errorf("%s: charged %v", form, charged)
		}
		story := s.ok(t, "demo", "GetReservation", fmt.Sprintf(`{"reservationId":%q}`, id))
		outcome, _ := story.json["outcome"].(map[string]any)
		if story.text("state") != "RESERVATION_STATE_SETTLED" || fmt.Sprint(outcome["charged"]) != fmt.Sprint(charged) || story.text("account") != "demo" {
			t.Errorf("%s: %s", form, story.body)
		}
	}
	charge := s.ok(t, "demo", "Charge", `{"idempotencyKey":"c","llm":{"model":"gpt-4o-mini","tokens":{"input":200,"cacheRead":800,"output":100}}}`)
	if !strings.Contains(charge.body, `"cost":"150000"`) {
		t.Errorf("charged: %s", charge.body)
	}
	again := s.ok(t, "demo", "Charge", `{"idempotencyKey":"c","llm":{"model":"gpt-4o-mini","tokens":{"input":200,"cacheRead":800,"output":100}}}`)
	if again.json["replayed"] != true || again.text("reservationId") != charge.text("reservationId") {
		t.Errorf("a repeat: %s", again.body)
	}
	view := s.ok(t, "demo", "GetQuota", `{}`)
	if totals, _ := view.json["totals"].(map[string]any); totals["cost"] != "600000" || totals["tokens"] != "4400" {
		t.Errorf("totals %v, want four calls", totals)
	}
	if dry := s.ok(t, "demo", "Reserve", `{"amounts":{"tokens":5},"dryRun":true}`); dry.text("reservationId") != "" || dry.text("expiresAt") != "" || dry.text("state") != "" || dry.remaining("tokens") == "" {
		t.Errorf("a dry run: %s", dry.body)
	}
}
