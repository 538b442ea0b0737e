package quota_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/budgetd/budgetd/quota"
)

func bucketLimit(name string, per ...string) quota.Limit {
	return quota.Limit{Name: name, Meter: quota.MeterTokens, Kind: quota.KindBucket, Rate: quota.Rate{Amount: 10, Every: time.Second}, Per: per}
}

func examplePolicy(t testing.TB) *quota.Policy {
	t.Helper()
	slow := quota.Limit{Name: "slow", Meter: quota.MeterInFlight, Kind: quota.KindSlots, Max: 3, Match: map[string][]string{"route": {"slow"}}}
	spend := quota.Limit{Name: "spend", Meter: quota.MeterCost, Kind: quota.KindQuota, Max: 100, Period: quota.PeriodMonth}
	larger := bucketLimit("tokens", "user", "account", "model")
	larger.Rate.Amount = 500
	west := bucketLimit("west", "region")
	west.Match = map[string][]string{"provider": {"open*"}}
	policy, err := quota.NewPolicy(
		[]quota.Plan{{Name: "pro", Limits: []quota.Limit{bucketLimit("tokens", "model"), slow, spend}}},
		[]quota.Pool{{Name: "west", Limit: west}, {Name: "all", Limit: bucketLimit("all")}},
		[]quota.Account{
			{Name: "acme", Plan: "pro", TimeZone: "Asia/Tokyo", AnchorDay: 15},
			{Name: "big", Plan: "pro", Overrides: []quota.Limit{bucketLimit("extra"), larger}},
		}, 7)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func TestApplied(t *testing.T) {
	policy := examplePolicy(t)
	if policy.Version != 7 {
		t.Errorf("version %d", policy.Version)
	}
	for _, c := range []struct {
		account string
		labels  labels
		want    []string
	}{
		{"acme", labels{"model": "m"}, []string{"tokens@10(model=m)", "spend@0()", "all/all@10()"}},
		{"acme", nil, []string{"tokens@10(model)", "spend@0()", "all/all@10()"}},
		{"acme", labels{"route": "slow", "provider": "openai", "region": "r"},
			[]string{"tokens@10(model)", "slow@0()", "spend@0()", "all/all@10()", "west/west@10(region=r)"}},
		{"big", labels{"model": "m", "user": "u"}, []string{"tokens@500(model=m,user=u)", "spend@0()", "extra@10()", "all/all@10()"}},
	} {
		applied, err := policy.Applied(c.account, c.labels)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range applied {
			name := a.Limit.Name
			if a.Pool != "" {
				name = a.Pool + "/" + name
			}
			got = append(got, fmt.Sprintf("%s@%d(%s)", name, a.Limit.Rate.Amount, a.Scope))
			if a.ID != a.Limit.ID() {
				t.Errorf("id %s of %s", a.ID, a.Limit.ID())
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %v: (-want +got)\n%s", c.account, c.labels, diff)
		}
	}
	all, err := policy.Limits("acme")
	if err != nil || len(all) != 5 {
		t.Errorf("%d limits, %v", len(all), err)
	}
}

func TestAppliedRefuses(t *testing.T) {
	policy := examplePolicy(t)
	for _, name := range []string{"", "nobody", strings.Repeat("x", 100_000)} {
		_, err := policy.Applied(name, nil)
		var unknown *quota.UnknownAccountError
		if !errors.Is(err, quota.ErrUnknownAccount) || !errors.As(err, &unknown) || unknown.Account != name || len(err.Error()) > 200 {
			t.Errorf("%.20q: %.300v", name, err)
		}
		if _, err := policy.Limits(name); !errors.Is(err, quota.ErrUnknownAccount) {
			t.Errorf("%.20q: %.300v", name, err)
		}
		if _, err := policy.Account(name); !errors.Is(err, quota.ErrUnknownAccount) {
			t.Errorf("%.20q: %.300v", name, err)
		}
	}
	if _, err := policy.Applied("acme", labels{"user": "\x00"}); err == nil || !strings.Contains(err.Error(), `labels["user"]`) {
		t.Errorf("got %v", err)
	}
}

// What the caller does to its own slices later does not reach the policy.
func TestPolicyCopies(t *testing.T) {
	limit := bucketLimit("tokens", "user", "account")
	limit.Match = map[string][]string{"route": {"slow"}}
	limit.Costs = []quota.CostRule{{Match: map[string][]string{"route": {"slow"}}, Weight: 5}}
	plans := []quota.Plan{{Name: "pro", Limits: []quota.Limit{limit}}}
	policy, err := quota.NewPolicy(plans, nil, []quota.Account{{Name: "a", Plan: "pro"}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"user", "account"}, limit.Per); diff != "" {
		t.Errorf("the caller's own list changed: %s", diff)
	}
	limit.Per[0], limit.Match["route"][0], limit.Costs[0].Match["route"][0], limit.Costs[0].Weight = "x", "x", "x", 9
	plans[0].Limits[0].Name = "x"
	want := quota.Limit{
		Name: "tokens", Meter: quota.MeterTokens, Kind: quota.KindBucket, Rate: quota.Rate{Amount: 10, Every: time.Second}, Burst: 10,
		Per: []string{"user"}, Match: map[string][]string{"route": {"slow"}},
		Costs:    []quota.CostRule{{Match: map[string][]string{"route": {"slow"}}, Weight: 5}},
		WhenDown: quota.DownClosed, OnExpiry: quota.ExpiryGiveBack,
	}
	if diff := cmp.Diff(want, policy.Plans["pro"].Limits[0]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	account := policy.Accounts["a"]
	if account.TimeZone != "UTC" || account.AnchorDay != 1 {
		t.Errorf("defaults: %+v", account)
	}
}

func TestNewPolicyRefuses(t *testing.T) {
	with := func(edit func(*quota.Limit)) []quota.Plan {
		limit := bucketLimit("tokens")
		edit(&limit)
		return []quota.Plan{{Name: "pro", Limits: []quota.Limit{limit}}}
	}
	many := make([]quota.Limit, 65)
	for i := range many {
		many[i] = bucketLimit(fmt.Sprintf("l%d", i))
	}
	for _, c := range []struct {
		name     string
		plans    []quota.Plan
		pools    []quota.Pool
		accounts []quota.Account
		version  int64
		want     []string // fields
	}{
		{name: "version", version: -1, want: []string{"version"}},
		{name: "plan name", plans: []quota.Plan{{Name: "A b"}}, want: []string{`plans."A b".name`}},
		{name: "plan twice", plans: []quota.Plan{{Name: "a"}, {Name: "a"}}, want: []string{"plans.a"}},
		{name: "pool twice", pools: []quota.Pool{{Name: "a", Limit: bucketLimit("a")}, {Name: "a", Limit: bucketLimit("a")}}, want: []string{"pools.a"}},
		{name: "limit twice", plans: []quota.Plan{{Name: "a", Limits: []quota.Limit{bucketLimit("l"), bucketLimit("l")}}}, want: []string{"plans.a.limits.l"}},
		{name: "too many limits", plans: []quota.Plan{{Name: "a", Limits: many}}, want: []string{"plans.a.limits"}},
		{name: "too many with overrides", plans: []quota.Plan{{Name: "a", Limits: many[:64]}},
			accounts: []quota.Account{{Name: "x", Plan: "a", Overrides: []quota.Limit{bucketLimit("other")}}}, want: []string{"accounts.x.limits"}},
		{name: "too many pools", pools: make([]quota.Pool, 65), want: []string{"pools"}},
		{name: "kind", plans: with(func(l *quota.Limit) { l.Kind = 9 }), want: []string{"plans.pro.limits.tokens.kind", "plans.pro.limits.tokens.rate"}},
		{name: "rate of 0", plans: with(func(l *quota.Limit) { l.Rate.Amount = 0 }), want: []string{"plans.pro.limits.tokens.rate"}},
		{name: "rate above 2^53-1", plans: with(func(l *quota.Limit) { l.Rate.Amount = 1 << 53 }), want: []string{"plans.pro.limits.tokens.rate"}},
		{name: "rate of no span", plans: with(func(l *quota.Limit) { l.Rate.Every = 0 }), want: []string{"plans.pro.limits.tokens.rate"}},
		{name: "rate of half a microsecond", plans: with(func(l *quota.Limit) { l.Rate.Every = time.Second + 500 }), want: []string{"plans.pro.limits.tokens.rate"}},
		{name: "burst", plans: with(func(l *quota.Limit) { l.Burst = -1 }), want: []string{"plans.pro.limits.tokens.burst"}},
		{name: "max of a bucket", plans: with(func(l *quota.Limit) { l.Max = 1 }), want: []string{"plans.pro.limits.tokens.max"}},
		{name: "period of a bucket", plans: with(func(l *quota.Limit) { l.Period = quota.PeriodDay }), want: []string{"plans.pro.limits.tokens.period"}},
		{name: "two faults", plans: with(func(l *quota.Limit) { l.WhenDown, l.OnExpiry = "local", "x" }),
			want: []string{"plans.pro.limits.tokens.on_expiry", "plans.pro.limits.tokens.when_down"}},
		{name: "pool's own name", pools: []quota.Pool{{Name: "a", Limit: bucketLimit("b")}}, want: []string{"pools.a.limit.name"}},
		{name: "pool quota", pools: []quota.Pool{{Name: "a", Limit: quota.Limit{Name: "a", Meter: "tokens", Kind: quota.KindQuota, Max: 5, Period: quota.PeriodDay}}}, want: []string{"pools.a.period"}},
		{name: "pool per account", pools: []quota.Pool{{Name: "a", Limit: bucketLimit("a", "account")}}, want: []string{"pools.a.per"}},
		{name: "account without its plan", accounts: []quota.Account{{Name: "x", Plan: "none"}}, want: []string{"accounts.x.plan"}},
		{name: "account twice", plans: []quota.Plan{{Name: "a"}}, accounts: []quota.Account{{Name: "x", Plan: "a"}, {Name: "x", Plan: "a"}}, want: []string{"accounts.x"}},
		{name: "account", plans: []quota.Plan{{Name: "a"}}, accounts: []quota.Account{{Name: "x", Plan: "a", TimeZone: "Local", AnchorDay: 32}},
			want: []string{"accounts.x.anchor_day", "accounts.x.time_zone"}},
		{name: "account name", plans: []quota.Plan{{Name: "a"}}, accounts: []quota.Account{{Name: "x{y}", Plan: "a"}}, want: []string{`accounts."x{y}".account`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy, err := quota.NewPolicy(c.plans, c.pools, c.accounts, c.version)
			if err == nil || policy != nil {
				t.Fatal("accepted")
			}
			var got []string
			for _, fault := range quota.FieldErrors(err) {
				got = append(got, fault.Field)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s\n%v", diff, err)
			}
		})
	}
}

func BenchmarkApplied(b *testing.B) {
	policy := examplePolicy(b)
	call := labels{"model": "gpt-4o", "provider": "openai", "region": "r", "route": "slow", "user": "7", "key": "k1"}
	for _, account := range []string{"acme", "big"} {
		b.Run(account, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := policy.Applied(account, call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
