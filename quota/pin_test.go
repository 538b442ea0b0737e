package quota

import (
	"slices"
	"strings"
	"testing"
	"time"
)

var pinnedAt = time.Date(2026, 12, 3, 9, 0, 0, 0, time.UTC)

func aPin(limit string, mode Mode) Pin {
	return Pin{Limit: limit, Mode: mode, By: "ops", Since: pinnedAt}
}

// ofPlan, ofPool and ofAccount say where a pin counts.
func (p Pin) ofPlan(name string) Pin    { p.Plan = name; return p }
func (p Pin) ofPool(name string) Pin    { p.Pool = name; return p }
func (p Pin) ofAccount(name string) Pin { p.Account = name; return p }
func (p Pin) until(at time.Time) Pin    { p.Until = at; return p }

// pinnable has a limit of one name in a plan, in another one, in an account of its
// own and in a pool.
func pinnable(t *testing.T) *Policy {
	t.Helper()
	limit := func(name string, mode Mode) Limit {
		return Limit{Name: name, Meter: MeterTokens, Kind: KindBucket, Rate: Rate{Amount: 10, Every: time.Second}, Mode: mode}
	}
	policy, err := NewPolicy(
		[]Plan{
			{Name: "pro", Limits: []Limit{limit("tokens", ""), limit("extra", ModeShadow)}},
			{Name: "free", Limits: []Limit{limit("tokens", "")}},
		},
		[]Pool{{Name: "shared", Limit: limit("shared", "")}, {Name: "tokens", Limit: limit("tokens", "")}},
		[]Account{
			{Name: "acme", Plan: "pro"},
			{Name: "beta", Plan: "pro", Overrides: []Limit{limit("tokens", ModeOff), limit("own", "")}},
			{Name: "gamma", Plan: "free"},
		}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// modesOf are the modes in force of what an account meets, by the two ways in which
// limits are looked up.
func modesOf(t *testing.T, policy *Policy, account string) string {
	t.Helper()
	all, err := policy.Limits(account)
	if err != nil {
		t.Fatal(err)
	}
	applied, err := policy.Applied(account, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := func(limits []Applied) string {
		var words []string
		for _, a := range limits {
			name := a.Limit.Name
			if a.Pool != "" {
				name = "pool/" + name
			}
			word := name + "=" + a.Mode.Word()
			if a.Pin != nil {
				word += "!"
			}
			words = append(words, word)
		}
		return strings.Join(words, " ")
	}
	if one, other := text(all), text(applied); one != other {
		t.Fatalf("Limits has %s, Applied has %s", one, other)
	}
	return text(all)
}

// Of several pins the one that names the limit counts, then the narrower place; what
// the policy states is seen beneath and never changed.
func TestPinsByPrecedence(t *testing.T) {
	base := pinnable(t)
	const acme, beta, gamma = "tokens=enforce extra=shadow pool/shared=enforce pool/tokens=enforce",
		"tokens=off extra=shadow own=enforce pool/shared=enforce pool/tokens=enforce",
		"tokens=enforce pool/shared=enforce pool/tokens=enforce"
	for _, c := range []struct {
		name              string
		pins              []Pin
		acme, beta, gamma string
	}{
		{"none", nil, acme, beta, gamma},
		{"all", []Pin{aPin("", ModeOff)},
			"tokens=off! extra=off! pool/shared=off! pool/tokens=off!", "tokens=off! extra=off! own=off! pool/shared=off! pool/tokens=off!", "tokens=off! pool/shared=off! pool/tokens=off!"},
		{"a name, everywhere", []Pin{aPin("tokens", ModeShadow)},
			"tokens=shadow! extra=shadow pool/shared=enforce pool/tokens=shadow!", "tokens=shadow! extra=shadow own=enforce pool/shared=enforce pool/tokens=shadow!", "tokens=shadow! pool/shared=enforce pool/tokens=shadow!"},
		{"a plan, with its accounts' own limits and without pools", []Pin{aPin("tokens", ModeShadow).ofPlan("pro")},
			"tokens=shadow! extra=shadow pool/shared=enforce pool/tokens=enforce", "tokens=shadow! extra=shadow own=enforce pool/shared=enforce pool/tokens=enforce", gamma},
		{"an account, with its plan's limits", []Pin{aPin("tokens", ModeShadow).ofAccount("acme"), aPin("", ModeOff).ofAccount("gamma")},
			"tokens=shadow! extra=shadow pool/shared=enforce pool/tokens=enforce", beta, "tokens=off! pool/shared=enforce pool/tokens=enforce"},
		{"a pool", []Pin{aPin("tokens", ModeOff).ofPool("tokens"), aPin("", ModeShadow).ofPool("shared")},
			"tokens=enforce extra=shadow pool/shared=shadow! pool/tokens=off!", "tokens=off extra=shadow own=enforce pool/shared=shadow! pool/tokens=off!", "tokens=enforce pool/shared=shadow! pool/tokens=off!"},
		{"the narrower place", []Pin{aPin("tokens", ModeOff), aPin("tokens", ModeShadow).ofPlan("pro"), aPin("tokens", ModeEnforce).ofAccount("beta"), aPin("tokens", ModeEnforce).ofPool("tokens")},
			"tokens=shadow! extra=shadow pool/shared=enforce pool/tokens=enforce!", "tokens=enforce! extra=shadow own=enforce pool/shared=enforce pool/tokens=enforce!", "tokens=off! pool/shared=enforce pool/tokens=enforce!"},
		{"the name before the place", []Pin{aPin("", ModeOff).ofAccount("acme"), aPin("tokens", ModeShadow)},
			"tokens=shadow! extra=off! pool/shared=enforce pool/tokens=shadow!", "tokens=shadow! extra=shadow own=enforce pool/shared=enforce pool/tokens=shadow!", "tokens=shadow! pool/shared=enforce pool/tokens=shadow!"},
		{"what there is not", []Pin{aPin("none", ModeOff), aPin("", ModeOff).ofPlan("gone"), aPin("tokens", ModeOff).ofAccount("gone")}, acme, beta, gamma},
	} {
		policy, err := base.WithPins(c.pins, pinnedAt)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for account, want := range map[string]string{"acme": c.acme, "beta": c.beta, "gamma": c.gamma} {
			if got := modesOf(t, policy, account); got != want {
				t.Errorf("%s: %s has\n%s, want\n%s", c.name, account, got, want)
			}
		}
		if got := modesOf(t, base, "beta"); got != beta {
			t.Fatalf("%s: the policy without pins became %s", c.name, got)
		}
		if limit := policy.Plans["pro"].Limits[0]; limit.Mode != "" {
			t.Fatalf("%s: the plan states %q", c.name, limit.Mode)
		}
	}
}

// A pin with an end counts up to it, not at it, and an end never comes back.
func TestPinsEnd(t *testing.T) {
	first, second := pinnedAt.Add(time.Minute), pinnedAt.Add(time.Hour)
	policy, err := pinnable(t).WithPins([]Pin{
		aPin("tokens", ModeOff).ofPlan("free").until(first), aPin("tokens", ModeShadow).until(second), aPin("", ModeEnforce).ofAccount("gamma").until(second),
	}, pinnedAt)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		at   time.Time
		want string
		pins int
		ends time.Time
	}{
		{first.Add(-1), "tokens=off! pool/shared=enforce pool/tokens=shadow!", 3, first},
		{first, "tokens=shadow! pool/shared=enforce pool/tokens=shadow!", 2, second},
		{second.Add(-1), "tokens=shadow! pool/shared=enforce pool/tokens=shadow!", 2, second},
		{pinnedAt, "tokens=shadow! pool/shared=enforce pool/tokens=shadow!", 2, second}, // a clock that went back
		{second, "tokens=enforce pool/shared=enforce pool/tokens=enforce", 0, time.Time{}},
	} {
		next := policy.At(step.at)
		if next.At(step.at) != next {
			t.Errorf("at %s the policy changes twice", step.at)
		}
		policy = next
		if got := modesOf(t, policy, "gamma"); got != step.want || len(policy.Pins()) != step.pins || !policy.PinEnds().Equal(step.ends) {
			t.Errorf("at %s: %s with %d pins until %s, want %s with %d until %s", step.at, got, len(policy.Pins()), policy.PinEnds(), step.want, step.pins, step.ends)
		}
	}
	late, err := pinnable(t).WithPins([]Pin{aPin("", ModeOff).until(first)}, first)
	if err != nil || len(late.Pins()) != 0 {
		t.Errorf("a pin that is over when it is read: %v, %v", late.Pins(), err)
	}
}

func TestPinnedExtra(t *testing.T) {
	policy, err := pinnable(t).WithPins([]Pin{aPin("", ModeOff)}, pinnedAt)
	if err != nil {
		t.Fatal(err)
	}
	extra := []Applied{{Limit: &Limit{Name: "envoy"}}}
	if got := policy.Pinned("acme", extra); got[0].Mode != ModeOff || extra[0].Mode != "" {
		t.Errorf("%+v of %+v", got, extra)
	}
}

func TestPinsAreBounded(t *testing.T) {
	base := pinnable(t)
	for _, c := range []struct {
		name  string
		pin   Pin
		field string
	}{
		{"a name", aPin("To kens", ModeOff), "limit"},
		{"a plan", aPin("tokens", ModeOff).ofPlan("p p"), "plan"},
		{"a pool", aPin("tokens", ModeOff).ofPool("P"), "pool"},
		{"an account", aPin("tokens", ModeOff).ofAccount("-a"), "account"},
		{"two places", aPin("tokens", ModeOff).ofPlan("pro").ofPool("tokens"), "plan"},
		{"plan and account", aPin("tokens", ModeOff).ofPlan("pro").ofAccount("acme"), "plan"},
		{"no mode", aPin("tokens", ""), "mode"},
		{"another mode", aPin("tokens", "silent"), "mode"},
		{"a long reason", Pin{Mode: ModeOff, Since: pinnedAt, Reason: strings.Repeat("x", MaxPinReasonBytes+1)}, "reason"},
		{"a reason of two lines", Pin{Mode: ModeOff, Since: pinnedAt, Reason: "a\nb"}, "reason"},
		{"a reason that is not text", Pin{Mode: ModeOff, Since: pinnedAt, Reason: "\xff"}, "reason"},
		{"no beginning", Pin{Mode: ModeOff}, "since"},
		{"too short", aPin("", ModeOff).until(pinnedAt.Add(MinPinSpan - 1)), "for"},
		{"too long", aPin("", ModeOff).until(pinnedAt.Add(MaxPinSpan + 1)), "for"},
		{"an end before the beginning", aPin("", ModeOff).until(pinnedAt.Add(-time.Hour)), "for"},
	} {
		err := c.pin.Validate()
		if faults := FieldErrors(err); len(faults) != 1 || faults[0].Field != c.field {
			t.Errorf("%s: %v, want one fault of %s", c.name, err, c.field)
		}
		if _, err := base.WithPins([]Pin{c.pin}, pinnedAt); err == nil {
			t.Errorf("%s: the policy took it", c.name)
		}
	}
	for _, good := range []Pin{
		aPin("tokens", ModeEnforce), aPin("", ModeOff).until(pinnedAt.Add(MinPinSpan)), aPin("", ModeShadow).until(pinnedAt.Add(MaxPinSpan)),
		{Mode: ModeOff, Since: pinnedAt, Reason: strings.Repeat("x", MaxPinReasonBytes)},
	} {
		if err := good.Validate(); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	if _, err := base.WithPins([]Pin{aPin("tokens", ModeOff), aPin("tokens", ModeShadow)}, pinnedAt); err == nil {
		t.Error("two pins of the same limits were taken")
	}
	var many []Pin
	for i := range MaxPins + 1 {
		many = append(many, aPin("", ModeOff).ofAccount("a"+strings.Repeat("b", i%100)+string(rune('c'+i/100%20))))
	}
	if _, err := base.WithPins(many, pinnedAt); err == nil || !strings.Contains(err.Error(), "at most 1000") {
		t.Errorf("%d pins: %v", len(many), err)
	}
	many[0].Until = pinnedAt.Add(time.Minute)
	if _, err := base.WithPins(many, pinnedAt.Add(time.Minute)); err != nil {
		t.Errorf("one of %d is over: %v", len(many), err)
	}
}

func TestPinCovers(t *testing.T) {
	policy := pinnable(t)
	for _, c := range []struct {
		pin  Pin
		want bool
	}{
		{aPin("", ModeOff), true},
		{aPin("tokens", ModeOff), true},
		{aPin("shared", ModeOff), true},
		{aPin("own", ModeOff), true},
		{aPin("none", ModeOff), false},
		{aPin("tokens", ModeOff).ofPlan("free"), true},
		{aPin("extra", ModeOff).ofPlan("free"), false},
		{aPin("own", ModeOff).ofPlan("pro"), true},
		{aPin("", ModeOff).ofPlan("none"), false},
		{aPin("tokens", ModeOff).ofAccount("acme"), true},
		{aPin("own", ModeOff).ofAccount("acme"), false},
		{aPin("own", ModeOff).ofAccount("beta"), true},
		{aPin("", ModeOff).ofAccount("none"), false},
		{aPin("", ModeOff).ofPool("shared"), true},
		{aPin("tokens", ModeOff).ofPool("shared"), false},
		{aPin("shared", ModeOff).ofPool("shared"), true},
		{aPin("", ModeOff).ofPool("none"), false},
	} {
		if got := policy.Covers(c.pin); got != c.want {
			t.Errorf("%s: %v", c.pin.Name(), got)
		}
	}
	names := map[string]bool{}
	for _, pin := range []Pin{aPin("", ModeOff), aPin("a", ModeOff), aPin("", ModeOff).ofPlan("a"), aPin("", ModeOff).ofPool("a"), aPin("", ModeOff).ofAccount("a"), aPin("a", ModeOff).ofPlan("a")} {
		names[pin.Name()] = true
	}
	if len(names) != 6 {
		t.Errorf("names %v", names)
	}
}

func TestPinnedLimits(t *testing.T) {
	policy, err := pinnable(t).WithPins([]Pin{aPin("", ModeOff), aPin("tokens", ModeShadow).ofPlan("pro"), aPin("tokens", ModeEnforce).ofAccount("acme")}, pinnedAt)
	if err != nil {
		t.Fatal(err)
	}
	text := func(counts map[Pin]int) string {
		var words []string
		for pin, n := range counts {
			words = append(words, pin.Name()+" "+string(rune('0'+n)))
		}
		slices.Sort(words)
		return strings.Join(words, ", ")
	}
	for _, c := range []struct{ only, plan, pool, account, want string }{
		{"", "pro", "", "", "every limit 1, tokens of account acme 1, tokens of plan pro 1"},
		{"extra", "pro", "", "", "every limit 1"},
		{"", "free", "", "", "every limit 1"},
		{"", "", "shared", "", "every limit 1"},
		{"", "", "", "beta", "every limit 1, tokens of plan pro 1"},
		{"", "none", "", "", ""},
	} {
		if got := text(policy.PinnedLimits(c.only, c.plan, c.pool, c.account)); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
