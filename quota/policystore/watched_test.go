package policystore

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/budgetd/budgetd/quota"
)

// What was in shadow once, however long ago, is not warned of when it is enforced, and
// neither is what a pin had turned off and only comes back; what a pin enforces, or
// lets go, without that, is.
func TestWatchedByTheHistory(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		clock := newClock()
		store := Open(open(), clock.Now)
		file := func(limits string) string {
			return "plans:\n  pro: {limits: [" + limits + "]}\n  free: {limits: [{name: z, meter: tokens, rate: 1/s}]}\naccounts:\n  acme: {plan: pro}\n  beta: {plan: free}\n"
		}
		limit := func(name, mode string) string {
			return "{name: " + name + ", meter: tokens, rate: 1/s, mode: " + mode + "}"
		}
		put := func(limits ...string) func() (Change, error) {
			return func() (Change, error) {
				return store.Apply(t.Context(), parse(t, file(strings.Join(limits, ", "))), Options{By: "ci"})
			}
		}
		pin := func(p quota.Pin) func() (Change, error) {
			return func() (Change, error) { return store.PinLimits(t.Context(), p, 0, "ops", nil, false) }
		}
		unpin := func(w Switch) func() (Change, error) {
			return func() (Change, error) { return store.UnpinLimits(t.Context(), w, "ops", false) }
		}
		turn := func(name string, mode quota.Mode) func() (Change, error) {
			return func() (Change, error) {
				return store.SwitchLimits(t.Context(), Switch{Limit: name, Mode: mode}, "ops", false)
			}
		}
		const warning = "is enforced and was not in shadow before"
		for _, step := range []struct {
			name string
			do   func() (Change, error)
			want string // the limits that are warned of
		}{
			{"the first", put(limit("a", "shadow"), limit("b", "off"), limit("c", "enforce")), ""},
			{"a is off", turn("a", quota.ModeOff), ""},
			{"a is enforced, after shadow and off", turn("a", quota.ModeEnforce), ""},
			{"b is enforced and never was in shadow", turn("b", quota.ModeEnforce), "b of plan pro"},
			{"c is off", turn("c", quota.ModeOff), ""},
			{"c is enforced again, and never was in shadow", turn("c", quota.ModeEnforce), "c of plan pro"},
			{"a goes and b is off", put(limit("b", "off"), limit("c", "enforce")), ""},
			{"a is back", put(limit("a", "enforce"), limit("b", "off"), limit("c", "enforce")), ""},
			{"another counter of the name", put("{name: a, meter: tokens, rate: 1/s, per: [user]}", limit("b", "off"), limit("c", "enforce")), "a of plan pro"},
			{"a pin enforces b", pin(quota.Pin{Limit: "b", Mode: quota.ModeEnforce}), "b of plan pro"},
			{"the pin goes", unpin(Switch{All: true}), ""},
			{"a pin enforces b for an account", pin(quota.Pin{Limit: "b", Account: "acme", Mode: quota.ModeEnforce}), "b of plan pro"},
			{"and goes", unpin(Switch{All: true}), ""},
			{"all is pinned off", pin(quota.Pin{Mode: quota.ModeOff}), ""},
			{"all comes back", unpin(Switch{All: true}), ""},
			{"all is pinned off again", pin(quota.Pin{Mode: quota.ModeOff}), ""},
			{"d comes beneath the pin", put(limit("a", "enforce"), limit("b", "off"), limit("c", "enforce"), limit("d", "enforce")), "d of plan pro"},
			{"and is let go with the rest", unpin(Switch{All: true}), "d of plan pro"},
			{"all is pinned in shadow", pin(quota.Pin{Mode: quota.ModeShadow}), ""},
			{"e comes beneath the pin, in shadow", put(limit("a", "enforce"), limit("e", "enforce")), ""},
			{"b is enforced for all", pin(quota.Pin{Mode: quota.ModeEnforce}), ""},
		} {
			clock.Advance(time.Minute)
			change, err := step.do()
			if err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			var got []string
			for _, said := range change.Warnings {
				if about, is := strings.CutSuffix(said, " "+warning+": mode: shadow shows what it would refuse"); is {
					got = append(got, strings.TrimPrefix(about, "limit "))
				} else if !strings.Contains(said, "pinned") {
					t.Errorf("%s: %q", step.name, said)
				}
			}
			if text := strings.Join(got, ", "); text != step.want {
				t.Errorf("%s: warned of %q, want %q", step.name, text, step.want)
			}
		}
	})
}

// However much one change enforces, what is said of it is bounded.
func TestWarningsAreBounded(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		store := Open(open(), nil)
		var pools strings.Builder
		pools.WriteString("pools:\n")
		for i := range 30 {
			pools.WriteString("  p" + strings.Repeat("x", i) + ": {meter: tokens, rate: 1/s}\n")
		}
		apply(t, store, pinFile)
		change := apply(t, store, pools.String())
		if n := len(change.Warnings); n != maxWarnings+1 || change.Warnings[maxWarnings] != "and more limits" {
			t.Errorf("%d warnings: %q", n, change.Warnings)
		}
	})
}
