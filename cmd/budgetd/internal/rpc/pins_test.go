package rpc_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// A pin has calls meet limits at its mode until it ends by the clock that the broker
// has, whatever is applied; what was counted before and in shadow is kept, and the
// answers have the policy's mode beside the one in force.
func TestPins(t *testing.T) {
	s := start(t, setup{})
	reserve := func(n int) answer {
		t.Helper()
		return s.post(t, "admin", "Reserve", fmt.Sprintf(`{"account":"small","amounts":{"requests":%d}}`, n))
	}
	status := func() map[string]any {
		t.Helper()
		for _, limit := range s.ok(t, "admin", "GetQuota", `{"account":"small"}`).json["limits"].([]any) {
			if limit := limit.(map[string]any); limit["limit"] == "default" {
				return limit
			}
		}
		t.Fatal("no limit")
		return nil
	}
	if a := reserve(8); a.status != http.StatusOK || a.remaining("default") != "2" {
		t.Fatalf("%s", a.body)
	}
	if a := reserve(8); a.status != http.StatusTooManyRequests {
		t.Fatalf("%s", a.body)
	}
	a := s.ok(t, "admin", "Admin/SwitchLimits", `{"all":true,"mode":"LIMIT_MODE_OFF","pin":true,"pinFor":"7200s","reason":"INC-42"}`)
	if !strings.Contains(a.body, `"kind":"pin"`) || !strings.Contains(a.body, `"name":"every limit"`) {
		t.Errorf("pinned: %s", a.body)
	}
	if a := reserve(8); a.status != http.StatusOK || strings.Contains(a.body, `"holds":`) {
		t.Errorf("off: %d %s", a.status, a.body)
	}
	pinned, _ := status()["pinned"].(map[string]any)
	if status()["mode"] != "LIMIT_MODE_OFF" || pinned["stated"] != "LIMIT_MODE_ENFORCE" || pinned["since"] == nil || pinned["until"] == nil || pinned["reason"] != nil {
		t.Errorf("GetQuota: %v", status())
	}
	if left := status()["remaining"]; left != "2" {
		t.Errorf("off, %v is left", left)
	}
	// A file on top changes the policy, and not what is in force.
	policy := s.ok(t, "admin", "Admin/GetPolicy", `{}`)
	if pins := policy.json["pins"].([]any); len(pins) != 1 || pins[0].(map[string]any)["reason"] != "INC-42" || strings.Contains(policy.text("policy"), "off") {
		t.Errorf("GetPolicy: %s", policy.body)
	}
	a = s.ok(t, "admin", "Admin/ApplyPolicy", `{"policy":"plans: {small: {limits: [{name: default, meter: requests, rate: 2/s, burst: 20}]}}"}`)
	if !strings.Contains(a.body, "1 limit is pinned off by admin since ") {
		t.Errorf("applied: %s", a.body)
	}
	if a := reserve(8); a.status != http.StatusOK {
		t.Errorf("off after apply: %d %s", a.status, a.body)
	}
	// A narrower one, in shadow, counts beside it.
	s.ok(t, "admin", "Admin/SwitchLimits", `{"limit":"default","account":"small","mode":"LIMIT_MODE_SHADOW","pin":true}`)
	if a := reserve(8); a.status != http.StatusOK || !strings.Contains(a.body, `"shadowRefusals"`) {
		t.Errorf("in shadow: %d %s", a.status, a.body)
	}
	if list := s.ok(t, "admin", "Admin/ListPins", `{}`); len(list.json["pins"].([]any)) != 2 || list.json["version"] != "4" {
		t.Errorf("ListPins: %s", list.body)
	}
	if a := s.ok(t, "admin", "Admin/UnpinLimits", `{"limit":"default"}`); !strings.Contains(a.body, `"action":"POLICY_ACTION_REMOVED"`) {
		t.Errorf("UnpinLimits: %s", a.body)
	}
	if a := reserve(8); a.status != http.StatusOK {
		t.Errorf("off again: %d %s", a.status, a.body)
	}
	// The end, by the clock: nothing is called, and nothing written.
	s.advance(2 * time.Hour)
	if a := reserve(21); a.status != http.StatusTooManyRequests {
		t.Errorf("after the end: %d %s", a.status, a.body)
	}
	if status()["mode"] != "LIMIT_MODE_ENFORCE" || status()["pinned"] != nil {
		t.Errorf("after the end: %v", status())
	}
	if list := s.ok(t, "admin", "Admin/ListPins", `{}`); list.json["pins"] != nil || list.json["version"] != "5" {
		t.Errorf("after the end: %s", list.body)
	}
	history := s.ok(t, "admin", "Admin/ListPolicyChanges", `{}`).body
	if n := strings.Count(history, `"kind":"pin"`); n != 3 || !strings.Contains(history, `"new":"INC-42"`) {
		t.Errorf("the history has %d changes of pins: %s", n, history)
	}
	if a := s.post(t, "admin", "Admin/SwitchLimits", `{"limit":"none","mode":"LIMIT_MODE_OFF","pin":true}`); a.status != http.StatusNotFound {
		t.Errorf("a limit that there is not: %d %s", a.status, a.body)
	}
	if a := s.post(t, "admin", "Admin/UnpinLimits", `{"limit":"none"}`); a.status != http.StatusNotFound {
		t.Errorf("a pin that there is not: %d %s", a.status, a.body)
	}
	if a := s.post(t, "admin", "Admin/UnpinLimits", `{"all":true,"ifVersion":"1"}`); a.json["code"] != "failed_precondition" {
		t.Errorf("another version: %d %s", a.status, a.body)
	}
}

// What a pin turns off, or puts in shadow, has no say while the engine is away.
func TestPinsWhileTheEngineIsAway(t *testing.T) {
	var away away
	limit := quota.Limit{Name: "open", Meter: quota.MeterRequests, Kind: quota.KindBucket, Rate: quota.Rate{Amount: 10, Every: time.Second}, WhenDown: quota.DownOpen}
	closed := limit
	closed.Name, closed.WhenDown = "closed", quota.DownClosed
	policy, err := quota.NewPolicy([]quota.Plan{{Name: "p", Limits: []quota.Limit{limit, closed}}}, nil, []quota.Account{{Name: "demo", Plan: "p"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, setup{policy: policy, decorate: away.decorate})
	away.set(true)
	defer away.set(false)
	for _, step := range []struct {
		method, body string
		status       int
	}{
		{"", "", http.StatusServiceUnavailable},
		{"Admin/SwitchLimits", `{"limit":"closed","mode":"LIMIT_MODE_SHADOW","pin":true}`, http.StatusOK},
		{"Admin/SwitchLimits", `{"limit":"closed","mode":"LIMIT_MODE_OFF","pin":true}`, http.StatusOK},
		{"Admin/UnpinLimits", `{"limit":"closed"}`, http.StatusServiceUnavailable},
	} {
		if step.method != "" {
			s.ok(t, "admin", step.method, step.body)
		}
		if a := s.post(t, "demo", "Reserve", `{}`); a.status != step.status {
			t.Errorf("after %s: %d %s", step.body, a.status, a.body)
		}
	}
}
