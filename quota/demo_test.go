package quota_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/budgetd/budgetd/quota"
)

func TestDemoPolicy(t *testing.T) {
	policy := quota.DemoPolicy()
	type row struct {
		Name string
		Ask  quota.Amount
	}
	amounts := quota.Amounts{quota.MeterTokens: 4000, quota.MeterCost: 7}
	for _, c := range []struct {
		route string
		want  []row
	}{
		{"chat", []row{{"tokens", 4000}, {"requests", 1}, {"spend", 7}}},
		{"slow", []row{{"tokens", 4000}, {"requests", 1}, {"slow", 1}, {"spend", 7}}},
	} {
		labels := map[string]string{"route": c.route}
		applied, err := policy.Applied(quota.DemoAccount, labels)
		if err != nil {
			t.Fatal(err)
		}
		var got []row
		for _, a := range applied {
			ask, err := a.Limit.Ask(amounts, labels)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, row{a.Limit.Name, ask})
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("route %s: (-want +got)\n%s", c.route, diff)
		}
	}
	limits := policy.Plans["demo"].Limits
	if want := (quota.Bucket{Capacity: 10_000, Refill: 1, PerMicros: 6000}); limits[0].Bucket() != want {
		t.Errorf("tokens: %+v, want %+v", limits[0].Bucket(), want)
	}
	if want := (quota.Bucket{Capacity: 600, Refill: 1, PerMicros: 100_000}); limits[1].Bucket() != want {
		t.Errorf("requests: %+v, want %+v", limits[1].Bucket(), want)
	}
	if limits[2].Max != 3 || limits[3].Max != 100_000_000_000 || limits[3].Period != quota.PeriodMonth {
		t.Errorf("slow and spend: %+v, %+v", limits[2], limits[3])
	}
	account, err := policy.Account(quota.DemoAccount)
	if err != nil {
		t.Fatal(err)
	}
	if key := account.PeriodAt(quota.PeriodMonth, time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)).Key; key != "m2026-11-01" {
		t.Errorf("period %s", key)
	}
}
