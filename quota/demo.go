package quota

import "time"

// DemoAccount is the account of the [DemoPolicy].
const DemoAccount = "demo"

// DemoPolicy returns the policy that "budgetd serve --demo" starts with: one
// account and one plan, both named demo, with 10,000 tokens a minute, 600
// requests a minute, 3 calls in flight on route=slow, and $100 a month.
func DemoPolicy() *Policy {
	plan := Plan{Name: DemoAccount, Limits: []Limit{
		{Name: "tokens", Meter: MeterTokens, Kind: KindBucket, Rate: Rate{Amount: 10_000, Every: time.Minute}, Burst: 10_000},
		{Name: "requests", Meter: MeterRequests, Kind: KindBucket, Rate: Rate{Amount: 600, Every: time.Minute}, Burst: 600},
		{Name: "slow", Meter: MeterInFlight, Kind: KindSlots, Max: 3, Match: map[string][]string{"route": {"slow"}}},
		{Name: "spend", Meter: MeterCost, Kind: KindQuota, Max: (100 * OneUSD).Amount(), Period: PeriodMonth},
	}}
	account := Account{Name: DemoAccount, Plan: DemoAccount}
	policy, err := NewPolicy([]Plan{plan}, nil, []Account{account}, 1)
	if err != nil {
		panic("quota: the demo policy is invalid: " + err.Error()) // a constant; a test builds it
	}
	return policy
}
