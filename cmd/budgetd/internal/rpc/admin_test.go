package rpc_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

// adminMethods are all calls of AdminService.
func adminMethods() []string {
	var names []string
	methods := budgetv1.File_budget_v1_admin_proto.Services().ByName("AdminService").Methods()
	for i := range methods.Len() {
		if name := string(methods.Get(i).Name()); name != "CorrectPrices" { // a stream
			names = append(names, name)
		}
	}
	return names
}

// No key but an admin's gets in, whatever it asks.
func TestAdminOnly(t *testing.T) {
	s := start(t, setup{})
	for _, method := range adminMethods() {
		for key, status := range map[string]int{"": http.StatusUnauthorized, "demo": http.StatusForbidden, "both": http.StatusForbidden} {
			if a := s.post(t, key, "Admin/"+method, `{}`); a.status != status {
				t.Errorf("%s with key %q: %d %s, want %d", method, key, a.status, a.body, status)
			}
		}
	}
}

const adminPolicy = `
plans:
  team:
    quotas: [{name: month, meter: tokens, amount: 1000, period: month, alert_at: [50%]}]
accounts:
  red: {plan: team}
prices:
  openai/gpt-4o-mini: [{from: 2026-01-01, input: $0.15, output: $0.60}]
`

// A plan is applied, an account granted, adjusted, used and reported.
func TestAdminFromPolicyToReport(t *testing.T) {
	s := start(t, setup{})
	apply := func(more string) answer {
		return s.post(t, "admin", "Admin/ApplyPolicy", fmt.Sprintf(`{"policy":%q%s}`, adminPolicy, more))
	}
	dry := apply(`,"dryRun":true`)
	if change := dry.json["change"].(map[string]any); change["fromVersion"] != "1" || change["version"] != "2" || len(change["objects"].([]any)) != 3 {
		t.Errorf("a dry run: %s", dry.body)
	}
	if a := apply(`,"ifVersion":"7"`); a.status != http.StatusBadRequest && a.json["code"] != "failed_precondition" {
		t.Errorf("at another version: %d %s", a.status, a.body)
	}
	if a := apply(`,"ifVersion":"1"`); a.status != http.StatusOK || !strings.Contains(a.body, `"changedBy":"admin"`) {
		t.Errorf("applied: %d %s", a.status, a.body)
	}
	if a := s.ok(t, "admin", "Admin/ListPrices", `{"model":"gpt-4o-mini"}`); !strings.Contains(a.body, `"input":"150000000"`) {
		t.Errorf("prices: %s", a.body)
	}

	grant := `{"account":"red","grant":{"name":"top-up","limit":"month","amount":"500","reason":"welcome"}}`
	s.ok(t, "admin", "Admin/AddGrant", grant)
	s.ok(t, "admin", "Admin/AddGrant", grant) // again: nothing changes
	if a := s.post(t, "admin", "Admin/AddGrant", strings.Replace(grant, "500", "600", 1)); a.json["code"] != "already_exists" {
		t.Errorf("another grant of that name: %s", a.body)
	}
	if a := s.ok(t, "admin", "GetQuota", `{"account":"red"}`); !strings.Contains(a.body, `"limitAmount":"1500"`) || !strings.Contains(a.body, `"granted":"500"`) {
		t.Errorf("with the grant: %s", a.body)
	}

	charged := s.ok(t, "admin", "Reserve", `{"account":"red","amounts":{"tokens":900},"labels":{"route":"chat"}}`)
	open := s.ok(t, "admin", "Admin/ListReservations", `{"account":"red"}`)
	if !strings.Contains(open.body, charged.text("reservationId")) {
		t.Errorf("open reservations: %s", open.body)
	}
	s.ok(t, "admin", "Refund", fmt.Sprintf(`{"reservationId":%q,"usage":{"amounts":{"tokens":400}}}`, charged.text("reservationId")))
	second := s.ok(t, "admin", "Reserve", `{"account":"red","amounts":{"tokens":100},"labels":{"route":"chat"}}`)
	released := s.ok(t, "admin", "Admin/ReleaseReservation", fmt.Sprintf(`{"reservationId":%q,"reason":"it hangs"}`, second.text("reservationId")))
	if !strings.Contains(released.body, `"tokens":"100"`) || released.text("state") != "RESERVATION_STATE_RELEASED" {
		t.Errorf("released: %s", released.body)
	}

	adjust := `{"account":"red","limit":"month","amount":"-150","reason":"our fault","idempotencyKey":"ticket-7"}`
	if a := s.ok(t, "admin", "Admin/Adjust", adjust); a.text("used") != "250" {
		t.Errorf("adjusted: %s", a.body)
	}
	if a := s.ok(t, "admin", "Admin/Adjust", adjust); a.json["replayed"] != true || a.text("used") != "250" {
		t.Errorf("adjusted again: %s", a.body)
	}
	if a := s.post(t, "admin", "Admin/Adjust", strings.Replace(adjust, "150", "151", 1)); a.json["code"] != "already_exists" {
		t.Errorf("another adjustment with that key: %s", a.body)
	}
	if a := s.ok(t, "admin", "Admin/ListAdjustments", `{"account":"red"}`); !strings.Contains(a.body, `"adjustedBy":"admin"`) || !strings.Contains(a.body, `"limit":"month"`) {
		t.Errorf("adjustments: %s", a.body)
	}
	usage := s.ok(t, "admin", "ListUsage", `{"account":"red","from":"2026-01-01T00:00:00Z","to":"2027-01-01T00:00:00Z","grain":"USAGE_GRAIN_TOTAL","groupBy":["route"],"meters":["tokens"]}`)
	if !strings.Contains(usage.body, `"used":"400","held":"1000","calls":"2"`) {
		t.Errorf("usage: %s", usage.body)
	}
	if a := s.ok(t, "admin", "Admin/Audit", `{"account":"red","all":true}`); a.text("gaps") != "" || a.text("checked") == "" {
		t.Errorf("audit: %s", a.body)
	}
	if a := s.ok(t, "admin", "Admin/ListGrants", `{"account":"red"}`); !strings.Contains(a.body, `"left":"500"`) {
		t.Errorf("grants: %s", a.body)
	}
	s.ok(t, "admin", "Admin/ListAlerts", `{"account":"red"}`)
	s.ok(t, "admin", "Admin/RemoveGrant", `{"account":"red","name":"top-up"}`)
	if a := s.ok(t, "admin", "Admin/ListPolicyChanges", `{"pageSize":2}`); !strings.Contains(a.body, `"grants.top-up`) || a.text("nextPageToken") == "" {
		t.Errorf("history: %s", a.body)
	}
	if a := s.ok(t, "admin", "Admin/GetPolicy", `{}`); !strings.Contains(a.body, "gpt-4o-mini") {
		t.Errorf("policy: %s", a.body)
	}
	if logs := s.logs.String(); !strings.Contains(logs, "usage was adjusted") || strings.Contains(logs, s.keys["admin"]) {
		t.Errorf("the log does not say what operators did, or says a key")
	}
}

// Accounts and keys are made, changed and ended.
func TestAdminAccountsAndKeys(t *testing.T) {
	s := start(t, setup{})
	s.ok(t, "admin", "Admin/CreateAccount", `{"name":"new","plan":"small","timeZone":"Asia/Tokyo","anchorDay":15}`)
	if a := s.post(t, "admin", "Admin/CreateAccount", `{"name":"new","plan":"small"}`); a.json["code"] != "already_exists" {
		t.Errorf("made twice: %s", a.body)
	}
	if a := s.ok(t, "admin", "Admin/UpdateAccount", `{"name":"new","plan":"demo"}`); !strings.Contains(a.body, `"timeZone":"Asia/Tokyo"`) || !strings.Contains(a.body, `"path":"plan"`) {
		t.Errorf("changed: %s", a.body)
	}
	if a := s.ok(t, "admin", "Admin/GetAccount", `{"name":"new"}`); !strings.Contains(a.body, `anchor_day: 15`) {
		t.Errorf("account: %s", a.body)
	}
	first := s.ok(t, "admin", "Admin/ListAccounts", `{"pageSize":3}`)
	second := s.ok(t, "admin", "Admin/ListAccounts", fmt.Sprintf(`{"pageSize":3,"pageToken":%q}`, first.text("nextPageToken")))
	if len(first.json["accounts"].([]any)) != 3 || len(second.json["accounts"].([]any)) != 1 {
		t.Errorf("pages: %s\n%s", first.body, second.body)
	}
	made := s.ok(t, "admin", "Admin/CreateKey", `{"name":"ci","accounts":["new","nobody"]}`)
	s.keys["ci"] = made.text("secret")
	if unknown := made.json["unknownAccounts"].([]any); len(unknown) != 1 || unknown[0] != "nobody" {
		t.Errorf("unknown accounts: %s", made.body)
	}
	s.ok(t, "ci", "GetQuota", `{"account":"new"}`)
	id := made.json["key"].(map[string]any)["id"].(string)
	if a := s.ok(t, "admin", "Admin/ListKeys", `{}`); strings.Contains(a.body, s.keys["ci"]) || !strings.Contains(a.body, id) {
		t.Errorf("keys: %s", a.body)
	}
	s.ok(t, "admin", "Admin/RevokeKey", fmt.Sprintf(`{"id":%q}`, id))
	s.advance(2e9)
	if a := s.post(t, "ci", "GetQuota", `{"account":"new"}`); a.status != http.StatusUnauthorized {
		t.Errorf("a revoked key: %d %s", a.status, a.body)
	}
	s.ok(t, "admin", "Admin/RotateSigningKey", `{}`)
	s.ok(t, "admin", "Admin/RemoveAccount", `{"name":"new"}`)
	if a := s.post(t, "admin", "Admin/RemoveAccount", `{"name":"new"}`); a.json["code"] != "not_found" {
		t.Errorf("removed twice: %s", a.body)
	}
}

// Bad input names the field, and changes nothing.
func TestAdminBadInput(t *testing.T) {
	s := start(t, setup{})
	before := s.ok(t, "admin", "Admin/GetPolicy", `{}`).body
	for _, c := range []struct{ method, body, field string }{
		{"Admin/ApplyPolicy", `{}`, "policy"},
		{"Admin/ApplyPolicy", `{"policy":"plans: {p: {limits: [{name: x}]}}"}`, "policy"},
		{"Admin/ApplyPolicy", `{"policy":"accounts: {a: {plan: none}}"}`, "policy.accounts.a.plan"},
		{"Admin/SwitchLimits", `{"limit":"default"}`, "mode"},
		{"Admin/SwitchLimits", `{"mode":"LIMIT_MODE_OFF"}`, "limit"},
		{"Admin/SwitchLimits", `{"limit":"default","all":true,"mode":"LIMIT_MODE_OFF"}`, "limit"},
		{"Admin/SwitchLimits", `{"all":true,"plan":"small","account":"small","mode":"LIMIT_MODE_OFF","pin":true}`, "plan"},
		{"Admin/SwitchLimits", `{"all":true,"mode":"LIMIT_MODE_OFF","reason":"r"}`, "reason"},
		{"Admin/SwitchLimits", `{"all":true,"mode":"LIMIT_MODE_OFF","pinFor":"3600s"}`, "pinFor"},
		{"Admin/SwitchLimits", `{"all":true,"mode":"LIMIT_MODE_OFF","pin":true,"pinFor":"59s"}`, "pinFor"},
		{"Admin/SwitchLimits", `{"all":true,"mode":"LIMIT_MODE_OFF","pin":true,"pinFor":"0s"}`, "pinFor"},
		{"Admin/SwitchLimits", `{"all":true,"mode":"LIMIT_MODE_OFF","pin":true,"pinFor":"-3600s"}`, "pinFor"},
		{"Admin/SwitchLimits", `{"all":true,"mode":"LIMIT_MODE_OFF","pin":true,"pinFor":"2592001s"}`, "pinFor"},
		{"Admin/SwitchLimits", `{"all":true,"mode":"LIMIT_MODE_OFF","pin":true,"reason":"two\nlines"}`, "reason"},
		{"Admin/SwitchLimits", `{"all":true,"mode":"LIMIT_MODE_OFF","pin":true,"reason":"` + strings.Repeat("x", 501) + `"}`, "reason"},
		{"Admin/SwitchLimits", `{"limit":"De fault","mode":"LIMIT_MODE_OFF","pin":true}`, "limit"},
		{"Admin/SwitchLimits", `{"all":true,"account":"-","mode":"LIMIT_MODE_OFF","pin":true}`, "account"},
		{"Admin/UnpinLimits", `{}`, "limit"},
		{"Admin/UnpinLimits", `{"limit":"default","all":true}`, "limit"},
		{"Admin/UnpinLimits", `{"all":true,"pool":"a","plan":"b"}`, "plan"},
		{"Admin/ListPolicyChanges", `{"pageSize":101}`, "pageSize"},
		{"Admin/ListPolicyChanges", `{"pageToken":"x"}`, "pageToken"},
		{"Admin/CreateAccount", `{"plan":"small"}`, "name"},
		{"Admin/CreateAccount", `{"name":"a b","plan":"small"}`, "name"},
		{"Admin/CreateAccount", `{"name":"a"}`, "plan"},
		{"Admin/CreateAccount", `{"name":"a","plan":"none"}`, "plan"},
		{"Admin/CreateAccount", `{"name":"a","plan":"small","timeZone":"Mars"}`, "timeZone"},
		{"Admin/CreateAccount", `{"name":"a","plan":"small","anchorDay":32}`, "anchorDay"},
		{"Admin/UpdateAccount", `{"name":"small"}`, ""},
		{"Admin/UpdateAccount", `{"name":"small","anchorDay":0}`, "anchorDay"},
		{"Admin/ListAccounts", `{"pageSize":-1}`, "pageSize"},
		{"Admin/CreateKey", `{"accounts":["small"]}`, "name"},
		{"Admin/CreateKey", `{"name":"k"}`, "accounts"},
		{"Admin/CreateKey", `{"name":"k","accounts":["small"],"expiresAt":"2020-01-01T00:00:00Z"}`, "expiresAt"},
		{"Admin/RevokeKey", `{}`, "id"},
		{"Admin/AddGrant", `{"account":"small"}`, "grant"},
		{"Admin/AddGrant", `{"account":"small","grant":{"name":"g","limit":"pages"}}`, "grant.amount"},
		{"Admin/AddGrant", `{"account":"small","grant":{"name":"g","limit":"pages","amount":"5","meter":"tokens"}}`, "grant.meter"},
		{"Admin/AddGrant", `{"account":"small","grant":{"name":"g","limit":"none","amount":"5"}}`, "grant.limit"},
		{"Admin/AddGrant", `{"account":"small","grant":{"name":"g","limit":"pages","amount":"5","scope":"team=a"}}`, "grant.scope"},
		{"Admin/AddGrant", `{"account":"small","grant":{"name":"g","limit":"pages","amount":"5","priority":101}}`, "grant.priority"},
		{"Admin/Adjust", `{"account":"small","limit":"pages","amount":"1","reason":"r"}`, "idempotencyKey"},
		{"Admin/Adjust", `{"account":"small","limit":"pages","amount":"0","reason":"r","idempotencyKey":"k"}`, "amount"},
		{"Admin/Adjust", `{"account":"small","limit":"pages","amount":"1","idempotencyKey":"k"}`, "reason"},
		{"Admin/Adjust", `{"account":"small","limit":"pages","amount":"1","reason":"r","idempotencyKey":"k","period":"m2026-03-02"}`, "period"},
		{"Admin/ListAdjustments", `{"account":"small","pageToken":"x"}`, "pageToken"},
		{"Admin/ListReservations", `{}`, "account"},
		{"Admin/ReleaseReservation", `{}`, "reservationId"},
		{"Admin/ReleaseReservation", `{"reservationId":"r"}`, "reason"},
		{"Admin/ReleaseReservation", `{"reservationId":"r","reason":"two\nlines"}`, "reason"},
		{"Admin/ListAlerts", `{"pageToken":"x"}`, "pageToken"},
		{"ListUsage", `{"account":"small"}`, "from"},
		{"ListUsage", `{"account":"small","from":"2026-02-01T00:00:00Z","to":"2026-01-01T00:00:00Z"}`, "to"},
		{"ListUsage", `{"account":"small","from":"2026-01-01T00:00:00Z","groupBy":["A"]}`, "groupBy[0]"},
		{"ListUsage", `{"account":"small","from":"2026-01-01T00:00:00Z","pageSize":10001}`, "pageSize"},
		{"ListUsage", `{"account":"small","from":"2026-01-01T00:00:00Z","pageToken":"x"}`, "pageToken"},
	} {
		a := s.post(t, "admin", c.method, c.body)
		fields := a.fields(t)
		if a.status != http.StatusBadRequest || len(fields) == 0 || fields[0].Field != c.field {
			t.Errorf("%s %s: %d %s, want the field %q", c.method, c.body, a.status, a.body, c.field)
		}
	}
	if after := s.ok(t, "admin", "Admin/GetPolicy", `{}`).body; after != before {
		t.Errorf("something changed:\n%s\n%s", before, after)
	}
}

// A caller sees the usage of its own accounts and of no other.
func TestListUsageOnlyOwn(t *testing.T) {
	s := start(t, setup{})
	s.ok(t, "other", "Charge", `{"amounts":{"pages":7}}`)
	span := `"from":"2026-01-01T00:00:00Z","to":"2027-01-01T00:00:00Z"`
	if a := s.ok(t, "demo", "ListUsage", `{`+span+`}`); strings.Contains(a.body, "rows") {
		t.Errorf("usage of others: %s", a.body)
	}
	if a := s.post(t, "demo", "ListUsage", `{"account":"other",`+span+`}`); a.status != http.StatusNotFound {
		t.Errorf("another's account: %d %s", a.status, a.body)
	}
	if a := s.post(t, "both", "ListUsage", `{`+span+`}`); a.status != http.StatusBadRequest {
		t.Errorf("which account: %d %s", a.status, a.body)
	}
	if a := s.ok(t, "admin", "ListUsage", `{`+span+`,"groupBy":["account"],"meters":["pages"]}`); !strings.Contains(a.body, `"labels":{"account":"other"}`) || !strings.Contains(a.body, `"used":"7"`) {
		t.Errorf("everybody's: %s", a.body)
	}
}
