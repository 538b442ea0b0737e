package quota_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/quota"
)

func TestAsk(t *testing.T) {
	points := []quota.CostRule{
		{Match: map[string][]string{"operation": {"write"}}, Weight: 5},
		{Match: map[string][]string{"operation": {"*"}}, Weight: 2},
	}
	for _, c := range []struct {
		name    string
		meter   quota.Meter
		costs   []quota.CostRule
		amounts quota.Amounts
		labels  labels
		want    quota.Amount
		bad     bool
	}{
		{name: "a call is one request", meter: quota.MeterRequests, want: 1},
		{name: "unless said", meter: quota.MeterRequests, amounts: quota.Amounts{"requests": 3}, want: 3},
		{name: "zero is said", meter: quota.MeterRequests, amounts: quota.Amounts{"requests": 0}, want: 0},
		{name: "tokens not stated", meter: quota.MeterTokens, amounts: quota.Amounts{"requests": 3}, want: 0},
		{name: "tokens", meter: quota.MeterTokens, amounts: quota.Amounts{"tokens": 4000}, want: 4000},
		{name: "one slot", meter: quota.MeterInFlight, amounts: quota.Amounts{"tokens": 4000}, want: 1},
		{name: "one slot stated", meter: quota.MeterInFlight, amounts: quota.Amounts{"in_flight": 1}, want: 1},
		{name: "two slots", meter: quota.MeterInFlight, amounts: quota.Amounts{"in_flight": 2}, bad: true},
		{name: "no slot", meter: quota.MeterInFlight, amounts: quota.Amounts{"in_flight": 0}, bad: true},
		{name: "a write is 5 points", meter: quota.MeterRequests, costs: points, labels: labels{"operation": "write"}, want: 5},
		{name: "the first rule wins", meter: quota.MeterRequests, costs: points, labels: labels{"operation": "read"}, want: 2},
		{name: "no rule matches", meter: quota.MeterRequests, costs: points, want: 1},
		{name: "weight times amount", meter: "pages", costs: points, amounts: quota.Amounts{"pages": 7}, labels: labels{"operation": "write"}, want: 35},
		{name: "the largest", meter: "pages", amounts: quota.Amounts{"pages": quota.MaxAmount}, want: quota.MaxAmount},
		{name: "above it", meter: "pages", amounts: quota.Amounts{"pages": quota.MaxAmount + 1}, bad: true},
		{name: "negative", meter: "pages", amounts: quota.Amounts{"pages": -1}, bad: true},
		{name: "a product above it", meter: "pages", costs: points, amounts: quota.Amounts{"pages": quota.MaxAmount / 4}, labels: labels{"operation": "write"}, bad: true},
		{name: "a product above 64 bits", meter: "pages", costs: []quota.CostRule{{Weight: quota.MaxWeight}}, amounts: quota.Amounts{"pages": quota.MaxAmount}, bad: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := quota.Limit{Name: "l", Meter: c.meter, Costs: c.costs}.Ask(c.amounts, c.labels)
			if got != c.want || (err != nil) != c.bad {
				t.Errorf("got %d, %v; want %d", got, err, c.want)
			}
			if err != nil && (!errors.Is(err, quota.ErrOutOfRange) || !strings.Contains(err.Error(), string(c.meter))) {
				t.Errorf("the error does not say what is wrong: %v", err)
			}
		})
	}
}

func TestAmountsValidate(t *testing.T) {
	many := quota.Amounts{}
	for i := range 33 {
		many[quota.Meter(fmt.Sprintf("m%d", i))] = 1
	}
	for _, c := range []struct {
		amounts quota.Amounts
		want    string
	}{
		{nil, ""},
		{quota.Amounts{"tokens": 0, "cost": quota.MaxAmount, "in_flight": 1, "my_unit2": 5}, ""},
		{many, "33 meters are stated, at most 32"},
		{quota.Amounts{"tokens": -1}, `amounts["tokens"]: amount out of range: -1 is not between 0 and 9007199254740991`},
		{quota.Amounts{"tokens": quota.MaxAmount + 1}, `amounts["tokens"]: amount out of range`},
		{quota.Amounts{"in_flight": 2}, `amounts["in_flight"]: amount out of range: a call always takes 1 slot, not 2`},
		{quota.Amounts{"Tokens": 1}, `amounts["Tokens"]: "Tokens" is not a meter`},
		{quota.Amounts{"": 1}, `amounts[""]: "" is not a meter`},
		{quota.Amounts{"b": -1, "a": -1}, `amounts["a"]`},
	} {
		err := c.amounts.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.amounts, err, c.want)
		}
	}
}
