package quota_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
)

type labels = map[string]string

func TestValidateLabels(t *testing.T) {
	many := labels{}
	for i := range 33 {
		many[fmt.Sprintf("l%d", i)] = "x"
	}
	for _, c := range []struct {
		name   string
		labels labels
		want   string // a part of the error; "" for none
	}{
		{"none", nil, ""},
		{"plain", labels{"model": "gpt-4o", "user.id": "7", "x_1-2.3": "ü 日本 %=,"}, ""},
		{"empty value", labels{"model": ""}, ""},
		{"longest", labels{"l" + strings.Repeat("x", 62): strings.Repeat("v", 256)}, ""},
		{"too many", many, "33 are stated, at most 32"},
		{"empty name", labels{"": "x"}, `labels[""]: the name is empty`},
		{"name too long", labels{strings.Repeat("x", 64): "v"}, "the name has 64 bytes, at most 63"},
		{"upper case", labels{"Model": "x"}, `labels["Model"]: the name does not match [a-z][a-z0-9_.-]{0,62}`},
		{"starts with a digit", labels{"1a": "x"}, `labels["1a"]: the name does not match`},
		{"account", labels{"account": "x"}, `labels["account"]: "account" is not a label`},
		{"value too long", labels{"user": strings.Repeat("v", 257)}, `labels["user"]: the value has 257 bytes, at most 256`},
		{"not UTF-8", labels{"user": "a\xff"}, `labels["user"]: the value is not valid UTF-8`},
		{"newline", labels{"user": "a\nb"}, `labels["user"]: the value contains a control character`},
		{"C1 control", labels{"user": "a\u0085b"}, `labels["user"]: the value contains a control character`},
		{"the first of several", labels{"b": "\x00", "a": "\x00", "c": "\x00"}, `labels["a"]`},
		{"a long name is cut", labels{strings.Repeat("é", 5000): "v"}, `..."]: the name has 10000 bytes`},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := quota.ValidateLabels(c.labels)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && len(err.Error()) > 300 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

func TestMatches(t *testing.T) {
	type match = map[string][]string
	for _, c := range []struct {
		match  match
		labels labels
		want   bool
	}{
		{nil, nil, true},
		{match{"route": {"slow"}}, labels{"route": "slow", "model": "x"}, true},
		{match{"route": {"slow"}}, labels{"route": "slower"}, false},
		{match{"route": {"slow"}}, nil, false},
		{match{"route": {""}}, nil, false},
		{match{"route": {""}}, labels{"route": ""}, true},
		{match{"route": {"*"}}, labels{"route": ""}, true},
		{match{"route": {"*"}}, labels{"model": "x"}, false},
		{match{"model": {"gpt-4o*"}}, labels{"model": "gpt-4o-mini"}, true},
		{match{"model": {"gpt-4o*"}}, labels{"model": "gpt-4o"}, true},
		{match{"model": {"gpt-4o*"}}, labels{"model": "gpt-4"}, false},
		{match{"model": {"a", "b", "c*"}}, labels{"model": "cd"}, true},
		{match{"model": {"a"}, "route": {"b"}}, labels{"model": "a", "route": "b"}, true},
		{match{"model": {"a"}, "route": {"b"}}, labels{"model": "a", "route": "c"}, false},
	} {
		if got := (quota.Limit{Match: c.match}).Matches(c.labels); got != c.want {
			t.Errorf("%v on %v: %v", c.match, c.labels, got)
		}
	}
}

func TestScope(t *testing.T) {
	for _, c := range []struct {
		per    []string
		labels labels
		want   string
	}{
		{nil, labels{"model": "x"}, ""},
		{[]string{"account"}, labels{"model": "x"}, ""},
		{[]string{"model", "user"}, labels{"user": "7", "model": "gpt-4o", "route": "r"}, "model=gpt-4o,user=7"},
		{[]string{"user", "account", "model", "user"}, labels{"user": "7", "model": "gpt-4o"}, "model=gpt-4o,user=7"},
		{[]string{"model", "user"}, labels{"user": "7"}, "model,user=7"},
		{[]string{"model", "user"}, labels{"user": "7", "model": ""}, "model=,user=7"},
		{[]string{"model"}, labels{"model": "a,user=7"}, "model=a%2Cuser%3D7"},
		{[]string{"model"}, labels{"model": "50%\x00\x1f\x7f é"}, "model=50%25%00%1F%7F é"},
	} {
		if got := (quota.Limit{Per: c.per}).Scope(c.labels); got != c.want {
			t.Errorf("per %v of %q: %q, want %q", c.per, c.labels, got, c.want)
		}
	}
}

// Two calls have one scope exactly when they agree in every label of per.
func TestScopeIsInjective(t *testing.T) {
	value := rapid.StringOfN(rapid.RuneFrom([]rune{'a', 'b', '=', ',', '%', '2', 'C', '\n', 'é'}), 0, 6, -1)
	draw := func(t *rapid.T, name string) labels {
		drawn := labels{}
		for _, label := range []string{"a", "b", "a.b"} {
			if rapid.Bool().Draw(t, name+" states "+label) {
				drawn[label] = value.Draw(t, name+" "+label)
			}
		}
		return drawn
	}
	rapid.Check(t, func(t *rapid.T) {
		limit := quota.Limit{Per: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "a.b", "account"}), 0, 4, rapid.ID).Draw(t, "per")}
		one, two := draw(t, "one"), draw(t, "two")
		same := true
		for _, label := range limit.Per {
			v, ok := one[label]
			w, ok2 := two[label]
			same = same && v == w && ok == ok2
		}
		if a, b := limit.Scope(one), limit.Scope(two); (a == b) != same {
			t.Fatalf("per %v: %q of %q and %q of %q", limit.Per, a, one, b, two)
		}
	})
}

func TestLimitID(t *testing.T) {
	base := quota.Limit{
		Name: "tokens", Meter: quota.MeterTokens, Kind: quota.KindBucket,
		Rate: quota.Rate{Amount: 1, Every: time.Second}, Per: []string{"model", "user"},
	}
	// Fixed: state in Redis and in ledgers is kept under it.
	if id := base.ID(); id != "tokens.ba110e4e" {
		t.Errorf("the id changed to %s: stored counters would be lost", id)
	}
	if quotaID := (quota.Limit{Name: "spend", Meter: quota.MeterCost, Kind: quota.KindQuota, Period: quota.PeriodMonth}).ID(); quotaID != "spend.e64692f2" {
		t.Errorf("the id changed to %s: stored counters would be lost", quotaID)
	}
	change := func(edit func(*quota.Limit)) string {
		l := base
		edit(&l)
		return l.ID()
	}
	for name, id := range map[string]string{
		"rate":                                change(func(l *quota.Limit) { l.Rate.Amount = 5 }),
		"burst":                               change(func(l *quota.Limit) { l.Burst = 5 }),
		"max":                                 change(func(l *quota.Limit) { l.Max = 5 }),
		"match":                               change(func(l *quota.Limit) { l.Match = map[string][]string{"a": {"b"}} }),
		"costs":                               change(func(l *quota.Limit) { l.Costs = []quota.CostRule{{Weight: 5}} }),
		"per order":                           change(func(l *quota.Limit) { l.Per = []string{"user", "account", "model"} }),
		"down":                                change(func(l *quota.Limit) { l.WhenDown = quota.DownOpen }),
		"a period that is none of a bucket's": change(func(l *quota.Limit) { l.Period = quota.PeriodDay }),
	} {
		if id != base.ID() {
			t.Errorf("a changed %s changes the id to %s", name, id)
		}
	}
	seen := map[string]string{base.ID(): "base"}
	for name, id := range map[string]string{
		"name":                       change(func(l *quota.Limit) { l.Name = "t" }),
		"meter":                      change(func(l *quota.Limit) { l.Meter = quota.MeterCost }),
		"kind":                       change(func(l *quota.Limit) { l.Kind = quota.KindSlots }),
		"per":                        change(func(l *quota.Limit) { l.Per = []string{"model"} }),
		"one label of the two names": change(func(l *quota.Limit) { l.Per = []string{"modeluser"} }),
		"quota by day":               change(func(l *quota.Limit) { l.Kind, l.Period = quota.KindQuota, quota.PeriodDay }),
		"quota by week":              change(func(l *quota.Limit) { l.Kind, l.Period = quota.KindQuota, quota.PeriodWeek }),
	} {
		if other, twice := seen[id]; twice {
			t.Errorf("%s and %s have one id %s", name, other, id)
		}
		seen[id] = name
	}
	safe := regexp.MustCompile(`^[a-z0-9_.-]{1,72}$`)
	if id := (quota.Limit{Name: strings.Repeat("x", 63)}).ID(); !safe.MatchString(id) || len(id) != quota.MaxLimitIDBytes {
		t.Errorf("%q", id)
	}
}
