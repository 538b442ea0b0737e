package policyfile

import (
	"fmt"

	"github.com/goccy/go-yaml"

	"github.com/budgetd/budgetd/quota"
)

// Marshal writes the document as YAML that [Parse] reads back as the same
// document, sorted as it is. It fails for a document that Parse would refuse.
func Marshal(d *Document) ([]byte, error) {
	var file yaml.MapSlice
	if len(d.Plans) > 0 {
		var plans yaml.MapSlice
		for _, plan := range d.Plans {
			limits, quotas := marshalLimits(plan.Limits)
			body := yaml.MapSlice{{Key: "limits", Value: limits}}
			if len(quotas) > 0 {
				body = append(body, yaml.MapItem{Key: "quotas", Value: quotas})
			}
			plans = append(plans, yaml.MapItem{Key: plan.Name, Value: body})
		}
		file = append(file, yaml.MapItem{Key: "plans", Value: plans})
	}
	if len(d.Pools) > 0 {
		var pools yaml.MapSlice
		for _, pool := range d.Pools {
			pools = append(pools, yaml.MapItem{Key: pool.Name, Value: marshalLimit(pool.Limit, false)})
		}
		file = append(file, yaml.MapItem{Key: "pools", Value: pools})
	}
	if len(d.Accounts) > 0 {
		var accounts yaml.MapSlice
		for _, account := range d.Accounts {
			accounts = append(accounts, yaml.MapItem{Key: account.Name, Value: marshalAccount(account)})
		}
		file = append(file, yaml.MapItem{Key: "accounts", Value: accounts})
	}
	data, err := yaml.MarshalWithOptions(file, yaml.Indent(2), yaml.IndentSequence(true))
	if err != nil {
		return nil, fmt.Errorf("write the policy as YAML: %w", err)
	}
	if _, err := Parse(data); err != nil {
		return nil, fmt.Errorf("the policy can't be written as YAML: %w", err)
	}
	return data, nil
}

// marshalLimits splits limits into what the file calls limits and quotas.
// Between the two the order is the file's: limits come first.
func marshalLimits(all []quota.Limit) (limits, quotas []yaml.MapSlice) {
	limits = []yaml.MapSlice{}
	for _, limit := range all {
		if limit.Kind == quota.KindQuota {
			quotas = append(quotas, marshalLimit(limit, true))
		} else {
			limits = append(limits, marshalLimit(limit, true))
		}
	}
	return limits, quotas
}

func marshalLimit(limit quota.Limit, named bool) yaml.MapSlice {
	var fields yaml.MapSlice
	add := func(key string, value any) { fields = append(fields, yaml.MapItem{Key: key, Value: value}) }
	if named {
		add("name", limit.Name)
	}
	add("meter", string(limit.Meter))
	switch limit.Kind {
	case quota.KindBucket:
		add("rate", quota.FormatRate(limit.Meter, limit.Rate))
		if limit.Burst != 0 {
			add("burst", quota.FormatAmount(limit.Meter, limit.Burst))
		}
	case quota.KindSlots:
		add("max", quota.FormatAmount(limit.Meter, limit.Max))
	case quota.KindQuota:
		add("amount", quota.FormatAmount(limit.Meter, limit.Max))
		add("period", string(limit.Period))
	}
	if len(limit.Per) > 0 {
		add("per", limit.Per)
	}
	if len(limit.Match) > 0 {
		add("match", limit.Match)
	}
	if len(limit.Costs) > 0 {
		var costs []yaml.MapSlice
		for _, rule := range limit.Costs {
			var cost yaml.MapSlice
			if len(rule.Match) > 0 {
				cost = append(cost, yaml.MapItem{Key: "match", Value: rule.Match})
			}
			costs = append(costs, append(cost, yaml.MapItem{Key: "weight", Value: int64(rule.Weight)}))
		}
		add("costs", costs)
	}
	if limit.WhenDown != "" {
		add("when_down", string(limit.WhenDown))
	}
	if limit.OnExpiry != "" {
		add("on_expiry", string(limit.OnExpiry))
	}
	return fields
}

func marshalAccount(account quota.Account) yaml.MapSlice {
	fields := yaml.MapSlice{{Key: "plan", Value: account.Plan}}
	add := func(key string, value any) { fields = append(fields, yaml.MapItem{Key: key, Value: value}) }
	if account.TimeZone != "" {
		add("time_zone", account.TimeZone)
	}
	if account.AnchorDay != 0 {
		add("anchor_day", account.AnchorDay)
	}
	limits, quotas := marshalLimits(account.Overrides)
	if len(limits) > 0 {
		add("limits", limits)
	}
	if len(quotas) > 0 {
		add("quotas", quotas)
	}
	return fields
}
