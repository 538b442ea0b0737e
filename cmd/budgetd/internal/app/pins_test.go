package app_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/test/broker"
)

// Operators read on /readyz what is pinned, and the metrics count it, until the pin ends
// by the broker's clock.
func TestPinsAreShown(t *testing.T) {
	c := demoConfig(t)
	stores, err := app.OpenStores(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stores.Policies.PinLimits(t.Context(), quota.Pin{Mode: quota.ModeOff, Reason: "INC-42"}, time.Hour, "ops", nil, false); err != nil {
		t.Fatal(err)
	}
	if err := stores.Close(); err != nil {
		t.Fatal(err)
	}
	var ahead atomic.Int64
	log := &broker.Output{}
	a := begin(t, c, app.Options{Out: log, Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	status, text := get(t, a.URL()+"/readyz")
	if status != http.StatusOK || !strings.HasPrefix(text, "ready\npinned off by ops since ") || !strings.HasSuffix(text, ": every limit (INC-42)\n") {
		t.Errorf("readyz: %d %q", status, text)
	}
	if !strings.Contains(log.String(), "limits are pinned") {
		t.Errorf("the log says nothing:\n%s", log)
	}
	pins := func(n string) bool {
		_, text := get(t, a.URL()+"/metrics")
		return strings.Contains(text, `budgetd_quota_policy_pins{mode="off"} `+n+"\n")
	}
	if !pins("1") {
		t.Error("the metrics do not count the pin")
	}
	ahead.Store(int64(time.Hour))
	if status, text := get(t, a.URL()+"/readyz"); status != http.StatusOK || text != "ready\n" {
		t.Errorf("readyz after the end: %d %q", status, text)
	}
	if !pins("0") || !strings.Contains(log.String(), "a pin has ended") {
		t.Errorf("the end is not told:\n%s", log)
	}
}
