package policystore

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/budgetd/budgetd/quota"
)

// A switch is one change of the stored policy: it has an author, a version and a
// place in the history, and what it does not name stays.
func TestSwitchLimits(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		store := Open(open(), nil)
		apply(t, store, firstFile)
		modes := func() (modes []string) {
			policy := load(t, store)
			for _, at := range []struct {
				name   string
				limits []quota.Limit
			}{{"free", policy.Plans["free"].Limits}, {"pro", policy.Plans["pro"].Limits}, {"pool", []quota.Limit{policy.Pools["openai-org"].Limit}}, {"beta", policy.Accounts["beta"].Overrides}} {
				for _, l := range at.limits {
					if l.Mode != "" {
						modes = append(modes, at.name+"/"+l.Name+"="+string(l.Mode))
					}
				}
			}
			return modes
		}
		for _, step := range []struct {
			name     string
			to       Switch
			dry      bool
			want     string
			warnings int
		}{
			{"a dry run", Switch{Limit: "requests", Mode: quota.ModeOff}, true, "", 0},
			{"wherever it is", Switch{Limit: "requests", Mode: quota.ModeShadow}, false, "free/requests=shadow pro/requests=shadow beta/requests=shadow", 0},
			{"one plan's", Switch{Limit: "requests", Plan: "pro", Mode: quota.ModeEnforce}, false, "free/requests=shadow beta/requests=shadow", 0},
			{"one account's", Switch{Limit: "requests", Account: "beta", Mode: quota.ModeOff}, false, "free/requests=shadow beta/requests=off", 0},
			{"a pool", Switch{Limit: "openai-org", Pool: "openai-org", Mode: quota.ModeOff}, false, "free/requests=shadow pool/openai-org=off beta/requests=off", 0},
			{"all", Switch{All: true, Mode: quota.ModeEnforce}, false, "", 1},
			{"again", Switch{All: true, Mode: quota.ModeEnforce}, false, "", 0},
		} {
			before := load(t, store).Version
			change, err := store.SwitchLimits(t.Context(), step.to, "ops", step.dry)
			if err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			if got := strings.Join(modes(), " "); got != step.want {
				t.Errorf("%s: %s, want %s", step.name, got, step.want)
			}
			if len(change.Warnings) != step.warnings {
				t.Errorf("%s: warnings %q, want %d", step.name, change.Warnings, step.warnings)
			}
			after := load(t, store).Version
			if moved := after != before; moved != (!step.dry && step.name != "again") {
				t.Errorf("%s: version %d after %d", step.name, after, before)
			}
			if !step.dry && change.Changes() {
				history, err := store.History(t.Context(), 0, 1)
				if err != nil || history[0].Version != after || history[0].By != "ops" {
					t.Errorf("%s: the history says %+v, %v", step.name, history, err)
				}
			}
		}
		for _, bad := range []Switch{{Mode: quota.ModeOff}, {Limit: "a", All: true}, {Limit: "a", Plan: "b", Pool: "c"}, {Limit: "a", Mode: "silent"}} {
			if _, err := store.SwitchLimits(t.Context(), bad, "ops", false); err == nil {
				t.Errorf("%+v was accepted", bad)
			}
		}
		for _, dry := range []bool{true, false} {
			if _, err := store.SwitchLimits(t.Context(), Switch{Limit: "none", Mode: quota.ModeOff}, "ops", dry); !errors.Is(err, ErrNotFound) {
				t.Errorf("an unknown limit: %v", err)
			}
			old := int64(1)
			if _, err := store.SwitchLimits(t.Context(), Switch{All: true, IfVersion: &old}, "ops", dry); !errors.Is(err, ErrVersionMoved) {
				t.Errorf("another version: %v", err)
			}
		}
	})
}

// What is enforced all at once, where it was not watched before, is told.
func TestUnwatchedLimits(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		store := Open(open(), nil)
		const before, after = `
plans:
  pro: {limits: [{name: a, meter: tokens, rate: 1/s}, {name: b, meter: tokens, rate: 1/s, mode: shadow}]}
accounts:
  acme: {plan: pro}
`, `
plans:
  pro: {limits: [{name: a, meter: tokens, rate: 2/s}, {name: b, meter: tokens, rate: 1/s}, {name: c, meter: tokens, rate: 1/s}, {name: d, meter: tokens, rate: 1/s, mode: shadow}]}
  new: {limits: [{name: a, meter: tokens, rate: 1/s}]}
pools:
  shared: {meter: tokens, rate: 1/s}
accounts:
  acme: {plan: pro, limits: [{name: a, meter: tokens, rate: 5/s}, {name: own, meter: tokens, rate: 1/s}]}
`
		if change := apply(t, store, before); len(change.Warnings) != 0 {
			t.Errorf("the first policy: %q", change.Warnings)
		}
		diff, err := store.Diff(t.Context(), parse(t, after), Options{})
		if err != nil {
			t.Fatal(err)
		}
		change := apply(t, store, after)
		text := strings.Join(change.Warnings, "\n")
		if text != strings.Join(diff.Warnings, "\n") || len(change.Warnings) != 3 {
			t.Errorf("%s\nand before: %q", text, diff.Warnings)
		}
		for _, want := range []string{"limit c of plan pro ", "limit shared of pool shared ", "limit own of account acme "} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in:\n%s", want, text)
			}
		}
		if again := apply(t, store, after); len(again.Warnings) != 0 {
			t.Errorf("the same again: %q", again.Warnings)
		}
	})
}
