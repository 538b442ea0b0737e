package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/test/provider"
)

// waiting is a call that states its wait, on a route.
func (r *rig) waiting(ctx context.Context, route, wait string) (*http.Response, error) {
	request := r.request(ctx, chatPath, chat, provider.Script{Tokens: provider.Tokens{Input: 8, Output: 2}})
	request.Header.Set(headerBudgetLabels, "route="+route)
	if wait != "" {
		request.Header.Set(headerBudgetMaxWait, wait)
	}
	return r.http.Do(request)
}

// slotsTaken waits until so many slots are taken.
func (r *rig) slotsTaken(want int64) {
	r.t.Helper()
	await(r.t, fmt.Sprintf("%d slots to be taken", want), func() bool {
		quota, err := r.broker.Service().GetQuota(r.t.Context(), connect.NewRequest(&budgetv1.GetQuotaRequest{}))
		if err != nil {
			r.t.Fatal(err)
		}
		for _, limit := range quota.Msg.Limits {
			if limit.Limit == "slots" {
				return slots-limit.Remaining == want
			}
		}
		return false
	})
}

// A call that may wait is held until its start; who hangs up before gives it back,
// and the provider never hears of it.
func TestCallsWaitForTheirStart(t *testing.T) {
	r := start(t, func(r *rig) {
		r.config.MaxWait, r.config.MaxWaitStated = 30*time.Second, time.Hour
	})
	call := func(route, wait string) *http.Response {
		t.Helper()
		a, err := r.waiting(t.Context(), route, wait)
		if err != nil {
			t.Fatal(err)
		}
		read(t, a)
		return a
	}
	began := time.Now()
	for _, wait := range []string{"", "", "10s"} { // by the setting, then by the header
		if a := call("paced", wait); a.StatusCode != http.StatusOK {
			t.Fatal(a.Status)
		}
	}
	if took := time.Since(began); took < 1900*time.Millisecond {
		t.Errorf("three calls at one a second took %v", took)
	}
	if a := call("paced", "0s"); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("X-Budget-Limit") != "paced" {
		t.Errorf("a call that waits for nothing: %s, want a refusal", a.Status)
	}

	if a := call("hourly", ""); a.StatusCode != http.StatusOK {
		t.Fatal(a.Status)
	}
	provided := len(r.provider.Calls())
	ctx, hangUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		a, err := r.waiting(ctx, "hourly", "1h")
		if err == nil {
			a.Body.Close()
		}
		ended <- err
	}()
	r.slotsTaken(1)
	hangUp()
	if err := <-ended; err == nil {
		t.Error("a caller that hung up got an answer")
	}
	r.slotsTaken(0)
	if got := len(r.provider.Calls()); got != provided {
		t.Errorf("the provider saw %d calls, want %d", got, provided)
	}
}

// A stated wait that is none is told what one is.
func TestStatedWaits(t *testing.T) {
	r := start(t)
	for wait, status := range map[string]int{"30s": 200, "1m": 200, "0s": 200, "61s": 400, "-1s": 400, "30": 400, "soon": 400, "9999999h": 400} {
		a, err := r.waiting(t.Context(), "any", wait)
		if err != nil {
			t.Fatal(err)
		}
		if text := read(t, a); a.StatusCode != status || status == 400 && !strings.Contains(text, headerBudgetMaxWait) {
			t.Errorf("%q: %d %s, want %d", wait, a.StatusCode, text, status)
		}
	}
}
