package policyfile_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
)

var update = flag.Bool("update", false, "write the errors of testdata/bad anew")

// Every file of testdata/bad has one fault, and its error beside it.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files: ", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			document, err := policyfile.Parse(data)
			if err == nil || document != nil {
				t.Fatal("the file was accepted")
			}
			if count := len(faultsOf(t, err)); count != 1 {
				t.Errorf("%d faults, want one:\n%v", count, err)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, readErr := os.ReadFile(golden)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if got := err.Error() + "\n"; got != string(want) {
				t.Errorf("got  %swant %s", got, want)
			}
		})
	}
}

func faultsOf(t *testing.T, err error) []*policyfile.Fault {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%T is no join of faults: %v", err, err)
	}
	var faults []*policyfile.Fault
	for _, e := range joined.Unwrap() {
		var fault *policyfile.Fault
		if !errors.As(e, &fault) {
			t.Fatalf("%T is no fault: %v", e, e)
		}
		faults = append(faults, fault)
	}
	return faults
}

func parseFile(t *testing.T, name string) *policyfile.Document {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	document, err := policyfile.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func instant(text string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return at
}

func TestFullFile(t *testing.T) {
	type match = map[string][]string
	want := &policyfile.Document{
		Plans: []quota.Plan{
			{Name: "free"},
			{Name: "pro", Limits: []quota.Limit{
				{Name: "requests", Meter: "requests", Kind: quota.KindBucket, Rate: quota.Rate{Amount: 600, Every: time.Minute}, Per: []string{"account"}},
				{Name: "tokens", Meter: "tokens", Kind: quota.KindBucket, Rate: quota.Rate{Amount: 200_000, Every: time.Minute}, Burst: 60_000, Per: []string{"account", "model"}, WhenDown: quota.DownOpen, Hold: quota.HoldForecast, Tolerance: 30_000},
				{Name: "in-flight", Meter: "in_flight", Kind: quota.KindSlots, Max: 20, Per: []string{"account"}, Match: match{"route": {"slow"}}},
				{Name: "money", Meter: "cost", Kind: quota.KindBucket, Rate: quota.Rate{Amount: 5_000_000_000, Every: time.Minute}, Per: []string{"key"}},
				{Name: "points", Meter: "points", Kind: quota.KindBucket, Rate: quota.Rate{Amount: 10, Every: 30 * time.Second}, Burst: 1_000_000,
					Match: match{"user": {"7"}, "beta": {"true"}, "model": {"gpt-4o*", "claude 3", "*"}},
					Costs: []quota.CostRule{{Match: match{"operation": {"write"}}, Weight: 5}, {Weight: 2}}, OnExpiry: quota.ExpiryCharge},
				{Name: "slow-trickle", Meter: "images", Kind: quota.KindBucket, Rate: quota.Rate{Amount: 1, Every: 24 * time.Hour}},
				{Name: "fast", Meter: "seconds", Kind: quota.KindBucket, Rate: quota.Rate{Amount: 5, Every: time.Second}, Burst: 10_000_000},
				{Name: "odd", Meter: "pages", Kind: quota.KindBucket, Rate: quota.Rate{Amount: 7, Every: 250 * time.Millisecond}, Burst: 1500},
				{Name: "cells", Meter: "requests", Kind: quota.KindGCRA, Rate: quota.Rate{Amount: 1, Every: time.Second}, Burst: 3, MaxWait: new(time.Duration)},
				{Name: "hourly", Meter: "requests", Kind: quota.KindFixedWindow, Rate: quota.Rate{Amount: 100, Every: time.Hour}},
				{Name: "since-first", Meter: "requests", Kind: quota.KindFixedWindow, Rate: quota.Rate{Amount: 100, Every: time.Hour}, FirstUse: true},
				{Name: "sliding", Meter: "tokens", Kind: quota.KindSlidingCounter, Rate: quota.Rate{Amount: 1_000_000, Every: time.Minute}},
				{Name: "exact", Meter: "requests", Kind: quota.KindSlidingLog, Rate: quota.Rate{Amount: 10, Every: 10 * time.Second}},
				{Name: "strict", Meter: "requests", Kind: quota.KindBucket, Rate: quota.Rate{Amount: 10, Every: 10 * time.Second}, Per: []string{"key"}, CountRefusals: true,
					Ban: quota.Ban{Refusals: 20, Within: time.Minute, For: 90 * time.Minute}},
				{Name: "steady", Meter: "requests", Kind: quota.KindLeakyQueue, Rate: quota.Rate{Amount: 2, Every: time.Second}, Burst: 30},
				{Name: "plain", Meter: "requests", Kind: quota.KindBucket, Rate: quota.Rate{Amount: 10, Every: 10 * time.Second}, KeepFor: map[quota.Priority]int{quota.PriorityDefault: 10, quota.PriorityCritical: 5}},
				{Name: "spend", Meter: "cost", Kind: quota.KindQuota, Max: 500_000_000_000, Period: quota.PeriodMonth, WhenDown: quota.DownClosed},
				{Name: "day-tokens", Meter: "tokens", Kind: quota.KindQuota, Max: 10_000_000, Period: quota.PeriodDay, OnExpiry: quota.ExpiryGiveBack},
				{Name: "week-cents", Meter: "cost", Kind: quota.KindQuota, Max: 250_000_000, Period: quota.PeriodWeek},
				{Name: "year-requests", Meter: "requests", Kind: quota.KindQuota, Max: quota.MaxAmount, Period: quota.PeriodYear, Soft: true, AlertAt: []int{100, 50}},
			}},
		},
		Pools: []quota.Pool{
			{Name: "openai-org", Limit: quota.Limit{Name: "openai-org", Meter: "tokens", Kind: quota.KindBucket, Rate: quota.Rate{Amount: 10_000_000, Every: time.Minute}, Match: match{"provider": {"openai"}}, Fair: true}},
			{Name: "openai-window", Limit: quota.Limit{Name: "openai-window", Meter: "tokens", Kind: quota.KindSlidingCounter, Rate: quota.Rate{Amount: 10_000_000, Every: time.Minute}, MaxWait: new(1500 * time.Millisecond)}},
			{Name: "workers", Limit: quota.Limit{Name: "workers", Meter: "in_flight", Kind: quota.KindSlots, Max: 8, Match: match{"route": {"slow"}}, Per: []string{"region"}, KeepFor: map[quota.Priority]int{quota.PriorityInteractive: 25}}},
		},
		Accounts: []quota.Account{
			{Name: "acme", Plan: "pro", TimeZone: "Asia/Tokyo", AnchorDay: 15},
			{Name: "solo", Plan: "free", Overrides: []quota.Limit{
				{Name: "requests", Meter: "requests", Kind: quota.KindBucket, Rate: quota.Rate{Amount: 5, Every: time.Second}},
				{Name: "spend", Meter: "cost", Kind: quota.KindQuota, Max: 1_000_000_000, Period: quota.PeriodMonth},
			}, Grants: []quota.Grant{
				{Name: "promo", Limit: "spend", Amount: 50_000_000_000, Money: true, Priority: -1,
					From: instant("2026-11-15T00:00:00Z"), Until: instant("2026-12-31T15:00:00.5Z"), Reason: "welcome: 50"},
				{Name: "open", Limit: "spend", Amount: 1, Money: true},
			}},
		},
		Prices: []quota.ModelPrice{
			{Provider: "openai", Model: "gpt-4o-mini", From: instant("2026-01-01T00:00:00Z"), Rates: map[string]quota.NanoUSD{"input": 150_000_000, "output": 600_000_000, "search": 10_000_000, "second": 100_000}},
			{
				Provider: "openai", Model: "gpt-4o-mini", From: instant("2026-02-01T00:00:00Z"), Rates: map[string]quota.NanoUSD{"input": 150_000_000, "output": 600_000_000},
				Tiers: []quota.PriceTier{
					{Above: 200_000, Rates: map[string]quota.NanoUSD{"input": 300_000_000, "output": 900_000_000}},
					{Above: 272_000, Rates: map[string]quota.NanoUSD{"input": 600_000_000}},
				},
				Services: []quota.PriceService{
					{Name: "batch", Rates: map[string]quota.NanoUSD{"input": 75_000_000, "output": 300_000_000}},
					{Name: "flex", Rates: map[string]quota.NanoUSD{}, Tiers: []quota.PriceTier{{Above: 200_000, Rates: map[string]quota.NanoUSD{"output": 450_000_000}}}},
				},
			},
			{Provider: "openai", Model: "gpt-4o-mini", From: instant("2026-12-01T09:30:00Z"), Rates: map[string]quota.NanoUSD{"input": 75_000_000, "output": 300_000_000, "cache_read": 0}},
			{Provider: "router", Model: "meta/llama", From: instant("2026-01-01T00:00:00Z"), Rates: map[string]quota.NanoUSD{"input": 0, "output": 0}},
		},
	}
	got := parseFile(t, "good/full.yaml")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := got.Policy(3); err != nil {
		t.Error(err)
	}
}

// design is the first look at plans in the project's design: with words that
// this version does not build, each refused by its name.
const design = `plans:
  pro:
    limits:
      - {name: requests, meter: requests, rate: 600/min, per: [account]}
      - {name: tokens, meter: tokens, rate: 200000/min, burst: 60000, per: [account, model],
         hold: forecast, tolerance: 30000, when_down: local}
      - {name: in-flight, meter: in_flight, max: 20, per: [account], match: {route: slow}}
      - {name: new-rule, meter: cost, rate: $5/min, per: [key], mode: shadow}
    quotas:
      - {name: spend, meter: cost, amount: $500, period: month, hold: worst_case,
         when_down: closed, alert_at: [50%, 80%, 100%]}
pools:
  openai-org: {meter: tokens, rate: 10M/min, match: {provider: openai}, keep_for: {interactive: 20%}}
accounts:
  acme: {plan: pro, time_zone: Asia/Tokyo, anchor_day: 15}
`

func TestDesignExampleRefusedByName(t *testing.T) {
	_, err := policyfile.Parse([]byte(design))
	if err == nil {
		t.Fatal("words that are not built were accepted")
	}
	want := []string{
		`line 6: plans.pro.limits[1].when_down: local is not supported by this version; write closed or open`,
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDesignExampleWithoutThem(t *testing.T) {
	text := strings.NewReplacer(
		", when_down: local", "",
		", mode: shadow", "",
	).Replace(design)
	document, err := policyfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	policy, err := document.Policy(1)
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"provider": "openai", "model": "gpt-4o", "key": "k1", "route": "slow"}
	applied, err := policy.Applied("acme", labels)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range applied {
		got = append(got, fmt.Sprintf("%s(%s)", a.Limit.Name, a.Scope))
	}
	want := []string{"requests()", "tokens(model=gpt-4o)", "in-flight()", "new-rule(key=k1)", "spend()", "openai-org()"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestEveryFaultIsReportedInOrder(t *testing.T) {
	_, err := policyfile.Parse([]byte(`accounts:
  acme: {plan: Pro}
plans:
  pro:
    quotas:
      - {name: spend, meter: cost, amount: 500, period: fortnight}
    limits:
      - {name: a, meter: tokens, rate: 0/s, colour: red}
      - {name: a, meter: tokens, rate: 1/s}
pools:
  org: 5
`))
	if err == nil {
		t.Fatal("accepted")
	}
	var lines []int
	for _, fault := range faultsOf(t, err) {
		lines = append(lines, fault.Line)
	}
	if diff := cmp.Diff([]int{2, 6, 8, 9, 11}, lines); diff != "" {
		t.Errorf("(-want +got)\n%s\n%v", diff, err)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString("plans:\n")
	for i := range 5000 {
		fmt.Fprintf(&text, "  p%d: 5\n", i)
	}
	_, err := policyfile.Parse([]byte(text.String()))
	faults := faultsOf(t, err)
	if len(faults) != policyfile.MaxFaults+1 || !strings.HasPrefix(faults[policyfile.MaxFaults].Problem, "4900 more faults") {
		t.Errorf("%d faults, the last: %v", len(faults), faults[len(faults)-1])
	}
}

func TestPolicyOfAnUnknownPlan(t *testing.T) {
	document := parseFile(t, "good/minimal.yaml")
	_, err := document.Policy(1)
	if err == nil || err.Error() != `accounts.acme.plan: there is no plan "pro"; state it under plans or name another` {
		t.Errorf("got %v", err)
	}
	whole := parseFile(t, "good/full.yaml").Merge(document)
	policy, err := whole.Policy(2)
	if err != nil {
		t.Fatal(err)
	}
	if account := policy.Accounts["acme"]; account.TimeZone != "UTC" || account.AnchorDay != 1 {
		t.Errorf("acme was not replaced as a whole: %+v", account)
	}
	if _, err := policy.Account("solo"); err != nil {
		t.Error("what the change did not name is gone: ", err)
	}
}

func TestHostileFiles(t *testing.T) {
	big := strings.Repeat("x", policyfile.MaxBytes)
	for name, text := range map[string]string{
		"too large":         "plans:\n  # " + big,
		"deep flow":         strings.Repeat("[", 500_000),
		"deep flow maps":    strings.Repeat("{a: ", 250_000),
		"deep block list":   strings.Repeat("- ", 500_000),
		"deep block map":    deepMap(1000),
		"many tokens":       "[" + strings.Repeat("a,", 400_000) + "]",
		"alias bomb":        "a: &a [1]\nb: &b [*a,*a,*a]\nc: [*b,*b,*b]\n",
		"long plain":        strings.Repeat("a ", 500_000),
		"long quoted":       `"` + strings.Repeat("a", 1_000_000) + `"`,
		"unbalanced quotes": `plans: "`,
		"null byte":         "plans:\x00",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policyfile.Parse([]byte(text))
			if err == nil {
				t.Fatal("accepted")
			}
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

func deepMap(depth int) string {
	var text strings.Builder
	for i := range depth {
		text.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return text.String()
}

func TestMarshalRoundTripsTheExamples(t *testing.T) {
	for _, file := range []string{"good/full.yaml", "good/minimal.yaml"} {
		checkRoundTrip(t, parseFile(t, file))
	}
	checkRoundTrip(t, policyfile.FromPolicy(quota.DemoPolicy()))
	checkRoundTrip(t, &policyfile.Document{})
}

type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func checkRoundTrip(t tester, document *policyfile.Document) {
	t.Helper()
	data, err := policyfile.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	again, err := policyfile.Parse(data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	if diff := cmp.Diff(document, again, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("(-stated +read)\n%s\n%s", diff, data)
	}
}

func TestMarshalRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkRoundTrip(t, drawDocument(t))
	})
}

func drawDocument(t *rapid.T) *policyfile.Document {
	name := rapid.OneOf(rapid.SampledFrom([]string{"null", "true", "no", "7", "1e3", "0x1f", "007", "on", "y", "1_0", "inf"}), rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,10}`))
	d := &policyfile.Document{}
	for _, plan := range rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(t, "plans") {
		d.Plans = append(d.Plans, quota.Plan{Name: plan, Limits: drawLimits(t, name)})
	}
	for _, pool := range rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(t, "pools") {
		limit := drawLimit(t, pool, rapid.SampledFrom([]quota.Kind{quota.KindBucket, quota.KindSlots, quota.KindSlidingCounter}).Draw(t, "kind"))
		d.Pools = append(d.Pools, quota.Pool{Name: pool, Limit: limit})
	}
	account := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:@-]{0,10}`)
	for _, who := range rapid.SliceOfNDistinct(account, 1, 3, rapid.ID).Draw(t, "accounts") {
		d.Accounts = append(d.Accounts, quota.Account{
			Name: who, Plan: name.Draw(t, "plan"),
			TimeZone:  rapid.SampledFrom([]string{"", "UTC", "Asia/Tokyo"}).Draw(t, "zone"),
			AnchorDay: rapid.IntRange(0, 31).Draw(t, "anchor"),
			Overrides: drawLimits(t, name),
			Grants:    drawGrants(t, name),
		})
	}
	for _, model := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}/[ -~]{1,10}`), 0, 3, rapid.ID).Draw(t, "models") {
		provider, model, _ := strings.Cut(model, "/")
		price := quota.ModelPrice{Provider: provider, Model: model, Rates: map[string]quota.NanoUSD{}}
		for _, class := range append([]string{"input", "output"}, rapid.SliceOfDistinct(rapid.SampledFrom(quota.PriceClasses[2:]), rapid.ID).Draw(t, "classes")...) {
			price.Rates[class] = quota.NanoUSD(rapid.Int64Range(0, int64(quota.MaxPricePerMil)).Draw(t, "rate"))
		}
		for _, unit := range rapid.SliceOfDistinct(rapid.SampledFrom(quota.PriceUnits), rapid.ID).Draw(t, "units") {
			price.Rates[unit] = quota.NanoUSD(rapid.Int64Range(0, int64(quota.MaxPriceSecond)).Draw(t, "each"))
		}
		price.Tiers = drawTiers(t)
		for _, name := range rapid.SliceOfNDistinct(name, 0, quota.MaxPriceServices, rapid.ID).Draw(t, "services") {
			price.Services = append(price.Services, quota.PriceService{
				Name: name, Rates: map[string]quota.NanoUSD{"input": quota.NanoUSD(rapid.Int64Range(0, int64(quota.MaxPricePerMil)).Draw(t, "input"))}, Tiers: drawTiers(t),
			})
		}
		slices.SortFunc(price.Services, func(a, b quota.PriceService) int { return strings.Compare(a.Name, b.Name) })
		for _, second := range rapid.SliceOfNDistinct(rapid.Int64Range(0, 1<<32), 1, 3, rapid.ID).Draw(t, "from") {
			price.From = time.Unix(second, 0).UTC()
			d.Prices = append(d.Prices, price)
		}
	}
	return (&policyfile.Document{}).Merge(d) // sorted
}

func drawTiers(t *rapid.T) []quota.PriceTier {
	var tiers []quota.PriceTier
	bounds := rapid.SliceOfNDistinct(rapid.Int64Range(1, quota.MaxPriceBound), 0, quota.MaxPriceTiers, rapid.ID).Draw(t, "bounds")
	slices.Sort(bounds)
	for _, above := range bounds {
		tiers = append(tiers, quota.PriceTier{Above: quota.Tokens(above), Rates: map[string]quota.NanoUSD{"output": quota.NanoUSD(rapid.Int64Range(0, int64(quota.MaxPricePerMil)).Draw(t, "output"))}})
	}
	return tiers
}

func drawGrants(t *rapid.T, name *rapid.Generator[string]) []quota.Grant {
	var grants []quota.Grant
	for _, n := range rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(t, "grants") {
		g := quota.Grant{
			Name: n, Limit: name.Draw(t, "quota"), Amount: quota.Amount(rapid.Int64Range(1, int64(quota.MaxAmount)).Draw(t, "amount")),
			Money: rapid.Bool().Draw(t, "money"), Priority: rapid.IntRange(-100, 100).Draw(t, "priority"),
			Scope: rapid.SampledFrom([]string{"", "team=a", "user=%2C,x"}).Draw(t, "scope"), Reason: rapid.StringMatching(`[ -~]{0,20}`).Draw(t, "reason"),
		}
		if rapid.Bool().Draw(t, "begins") {
			g.From = time.UnixMicro(rapid.Int64Range(0, 1<<52).Draw(t, "from")).UTC()
		}
		if rapid.Bool().Draw(t, "ends") {
			g.Until = time.UnixMicro(rapid.Int64Range(1<<52+1, 1<<53).Draw(t, "until")).UTC()
		}
		grants = append(grants, g)
	}
	return grants
}

func drawLimits(t *rapid.T, name *rapid.Generator[string]) []quota.Limit {
	var limits, quotas []quota.Limit
	for _, n := range rapid.SliceOfNDistinct(name, 0, 4, rapid.ID).Draw(t, "limits") {
		limit := drawLimit(t, n, rapid.SampledFrom([]quota.Kind{quota.KindBucket, quota.KindSlots, quota.KindQuota, quota.KindGCRA, quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog, quota.KindLeakyQueue}).Draw(t, "kind"))
		if limit.Kind == quota.KindQuota {
			quotas = append(quotas, limit)
		} else {
			limits = append(limits, limit)
		}
	}
	return append(limits, quotas...)
}

func drawLimit(t *rapid.T, name string, kind quota.Kind) quota.Limit {
	amount := rapid.Custom(func(t *rapid.T) quota.Amount {
		return quota.Amount(rapid.OneOf(rapid.Int64Range(1, 9), rapid.Int64Range(1, int64(quota.MaxAmount)), rapid.Just(int64(5_000_000))).Draw(t, "amount"))
	})
	l := quota.Limit{
		Name: name, Kind: kind, Meter: rapid.SampledFrom([]quota.Meter{quota.MeterTokens, quota.MeterCost, "pages", "null"}).Draw(t, "meter"),
		Match:    drawMatch(t),
		Per:      rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"model", "user", "null", "y"}), 0, 3, rapid.ID).Draw(t, "per"),
		WhenDown: rapid.SampledFrom([]quota.DownRule{"", quota.DownClosed, quota.DownOpen}).Draw(t, "down"),
		Mode:     rapid.SampledFrom([]quota.Mode{"", quota.ModeShadow, quota.ModeOff}).Draw(t, "mode"),
		OnExpiry: rapid.SampledFrom([]quota.ExpiryRule{"", quota.ExpiryGiveBack, quota.ExpiryCharge}).Draw(t, "expiry"),
	}
	switch kind {
	case quota.KindBucket:
		l.Rate = quota.Rate{Amount: amount.Draw(t, "rate"), Every: time.Duration(rapid.OneOf(
			rapid.Int64Range(1000, 86_400_000_000), rapid.SampledFrom([]int64{1000, 1_000_000, 30_000_000, 60_000_000, 3_600_000_000, 86_400_000_000}),
		).Draw(t, "every")) * time.Microsecond}
		if rapid.Bool().Draw(t, "burst stated") {
			l.Burst = amount.Draw(t, "burst")
		}
	case quota.KindGCRA, quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog:
		l.Rate = quota.Rate{Amount: quota.Amount(rapid.Int64Range(1, quota.MaxLogUnits).Draw(t, "rate")), Every: time.Duration(rapid.Int64Range(1000, 86_400_000_000).Draw(t, "every")) * time.Microsecond}
		l.FirstUse = l.Kind == quota.KindFixedWindow && rapid.Bool().Draw(t, "first use")
	case quota.KindLeakyQueue:
		l.Rate = quota.Rate{Amount: quota.Amount(rapid.Int64Range(1, 1000).Draw(t, "rate")), Every: time.Duration(rapid.Int64Range(1000, 1_000_000).Draw(t, "every")) * time.Microsecond}
		l.Burst = quota.Amount(rapid.Int64Range(0, 3600).Draw(t, "queue"))
	case quota.KindSlots:
		l.Meter, l.Max = quota.MeterInFlight, amount.Draw(t, "max")
	case quota.KindQuota:
		l.Max = amount.Draw(t, "max")
		l.Period = rapid.SampledFrom([]quota.PeriodUnit{quota.PeriodDay, quota.PeriodWeek, quota.PeriodMonth, quota.PeriodYear}).Draw(t, "period")
		l.Soft = rapid.Bool().Draw(t, "soft")
		l.AlertAt = rapid.SliceOfNDistinct(rapid.IntRange(1, quota.MaxAlertPercent), 0, 4, rapid.ID).Draw(t, "alerts")
	}
	if kind.HasRate() && kind != quota.KindLeakyQueue && rapid.Bool().Draw(t, "bounds waits") {
		l.MaxWait = new(time.Duration(rapid.Int64Range(0, 3_600_000).Draw(t, "max wait")) * time.Millisecond)
	}
	if kind != quota.KindSlots {
		for range rapid.IntRange(0, 2).Draw(t, "costs") {
			l.Costs = append(l.Costs, quota.CostRule{Match: drawMatch(t), Weight: quota.Amount(rapid.Int64Range(1, 1_000_000).Draw(t, "weight"))})
		}
	}
	return l
}

func drawMatch(t *rapid.T) map[string][]string {
	value := rapid.OneOf(
		rapid.SampledFrom([]string{"", "*", "null", "~", "true", "7", "007", "1.50", "1_0", ".inf", "-", "- a", "a: b", "a #b", "#", "&a", "*", "!x", "|", ">", "%", "@", "`", "'", `"`, `\`, " ", " a ", "a  b", "{", "[a]", ",", "?", "---", "...", "=", "<<", "2026-11-15", "é", "\u00a0", "\u2028", "\ufeff", "\U000e0001", "日本", "12:30", "x*"}),
		rapid.StringMatching(`[ -)+-~]{0,12}`),
		rapid.StringMatching(`[a-z ]{0,120}`),
	)
	var match map[string][]string
	for _, label := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"route", "null", "y", "user.id", "x-1"}), 0, 3, rapid.ID).Draw(t, "labels") {
		if match == nil {
			match = map[string][]string{}
		}
		match[label] = rapid.SliceOfNDistinct(value, 1, 4, rapid.ID).Draw(t, "values")
	}
	return match
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(design))
	for _, pattern := range []string{"testdata/good/*.yaml", "testdata/bad/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		document, err := policyfile.Parse(data)
		if err != nil {
			if document != nil || err.Error() == "" {
				t.Fatalf("%v with %v", document, err)
			}
			return
		}
		checkRoundTrip(t, document)
		if _, err := document.Policy(1); err != nil {
			// Only what the whole shows: the plan of an account.
			for _, fault := range quota.FieldErrors(err) {
				if !strings.HasSuffix(fault.Field, ".plan") && !strings.HasSuffix(fault.Field, ".limits") && fault.Field != "pools" {
					t.Fatalf("Parse missed %v", fault)
				}
			}
		}
	})
}
