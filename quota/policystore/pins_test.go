package policystore

import (
	"bytes"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/budgetd/budgetd/quota"
)

// pinNow pins, and fails the test when it can't.
func pinNow(t *testing.T, store *Store, pin quota.Pin, span time.Duration) Change {
	t.Helper()
	change, err := store.PinLimits(t.Context(), pin, span, "ops", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	return change
}

// inForce are the modes that an account of the policy meets.
func inForce(t *testing.T, policy *quota.Policy, account string) string {
	t.Helper()
	limits, err := policy.Limits(account)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, a := range limits {
		words = append(words, a.Limit.Name+"="+a.Mode.Word())
	}
	return strings.Join(words, " ")
}

const pinFile = `
plans:
  pro: {limits: [{name: a, meter: tokens, rate: 1/s}, {name: b, meter: tokens, rate: 1/s, mode: shadow}]}
  free: {limits: [{name: a, meter: tokens, rate: 1/s}]}
accounts:
  acme: {plan: pro}
  beta: {plan: free}
`

// A pin outlives what is applied on top of it, and what is stated counts once it is
// taken away. Each step has a version, an author and a place in the history.
func TestPinsOutliveApply(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		store := Open(open(), newClock().Now)
		apply(t, store, pinFile)
		pinNow(t, store, quota.Pin{Mode: quota.ModeOff, Reason: "the provider is down"}, 0)
		pinNow(t, store, quota.Pin{Limit: "a", Plan: "pro", Mode: quota.ModeShadow}, 0)
		if got := inForce(t, load(t, store), "acme"); got != "a=shadow b=off" {
			t.Errorf("pinned: %s", got)
		}
		const later = `
plans:
  pro: {limits: [{name: a, meter: tokens, rate: 2/s}, {name: b, meter: tokens, rate: 1/s}, {name: c, meter: tokens, rate: 1/s}]}
pools:
  shared: {meter: tokens, rate: 1/s}
`
		diff, err := store.Diff(t.Context(), parse(t, later), Options{})
		if err != nil {
			t.Fatal(err)
		}
		change, err := store.Apply(t.Context(), parse(t, later), Options{By: "ci", Prune: true})
		if err == nil {
			t.Fatal("a plan that an account has was pruned")
		}
		if change, err = store.Apply(t.Context(), parse(t, later), Options{By: "ci"}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(change.Warnings, diff.Warnings) {
			t.Errorf("apply warns %q, and its dry run %q", change.Warnings, diff.Warnings)
		}
		text := strings.Join(change.Warnings, "\n")
		for _, want := range []string{
			`3 limits are pinned off by ops since 2026-11-15T09:30:00Z: every limit (the provider is down); what is stated of the mode counts once "budgetd limit unpin" takes the pin away`,
			"1 limit is pinned shadow by ops since 2026-11-15T09:30:00Z: a of plan pro;",
			"limit c of plan pro is enforced and was not in shadow before",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
		if got := inForce(t, load(t, store), "acme"); got != "a=shadow b=off c=off shared=off" {
			t.Errorf("after apply: %s", got)
		}
		if again := apply(t, store, later); again.Changes() || len(again.Warnings) != 2 {
			t.Errorf("applied again: %v, warnings %q", again.Changes(), again.Warnings)
		}
		// A switch of the policy says so too, of the limits that it is about.
		switched, err := store.SwitchLimits(t.Context(), Switch{Limit: "a", Plan: "pro", Mode: quota.ModeEnforce}, "ops", true)
		if err != nil || len(switched.Warnings) != 1 || !strings.Contains(switched.Warnings[0], "1 limit is pinned shadow") {
			t.Errorf("a switch beneath a pin: %q, %v", switched.Warnings, err)
		}
		if _, err := store.UnpinLimits(t.Context(), Switch{All: true}, "lead", false); err != nil {
			t.Fatal(err)
		}
		if got := inForce(t, load(t, store), "acme"); got != "a=enforce b=enforce c=enforce shared=enforce" {
			t.Errorf("after the release: %s", got)
		}
		history, err := store.History(t.Context(), 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, h := range history {
			for _, o := range h.Objects {
				if o.Kind == KindPin {
					line := h.By + " " + string(o.Action) + " " + o.Name
					for _, f := range o.Fields {
						line += " " + f.Path + "=" + f.New
					}
					lines = append(lines, line)
				}
			}
		}
		want := []string{"lead removed a of plan pro", "lead removed every limit", "ops added a of plan pro mode=shadow", "ops added every limit mode=off reason=the provider is down"}
		if !slices.Equal(lines, want) || history[0].Version != 5 {
			t.Errorf("history, at version %d:\n%s", history[0].Version, strings.Join(lines, "\n"))
		}
	})
}

// A pin needs something to pin when it is set, outlives what it pins, and counts
// again when that is back.
func TestPinsOfWhatComesAndGoes(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		clock := newClock()
		store := Open(open(), clock.Now)
		pinNow(t, store, quota.Pin{Mode: quota.ModeShadow}, 0) // every limit: also before there is one
		apply(t, store, pinFile)
		if got := inForce(t, load(t, store), "acme"); got != "a=shadow b=shadow" {
			t.Errorf("applied beneath a pin of every limit: %s", got)
		}
		if change, err := store.UnpinLimits(t.Context(), Switch{All: true}, "ops", false); err != nil || change.Count(Removed) != 1 {
			t.Fatalf("%+v, %v", change, err)
		}
		for _, dry := range []bool{true, false} {
			for _, none := range []quota.Pin{{Limit: "none"}, {Limit: "b", Plan: "free"}, {Plan: "gone"}, {Account: "gone"}, {Pool: "gone"}} {
				none.Mode = quota.ModeOff
				if _, err := store.PinLimits(t.Context(), none, 0, "ops", nil, dry); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), none.Name()) {
					t.Errorf("%s: %v", none.Name(), err)
				}
			}
		}
		pinNow(t, store, quota.Pin{Limit: "b", Mode: quota.ModeOff}, 0)
		apply(t, store, "plans:\n  pro: {limits: [{name: a, meter: tokens, rate: 1/s}]}\n")
		policy := load(t, store)
		if pins := policy.Pins(); len(pins) != 1 || policy.Covers(pins[0]) {
			t.Errorf("a pin of a limit that went: %v", pins)
		}
		apply(t, store, pinFile)
		if got := inForce(t, load(t, store), "acme"); got != "a=enforce b=off" {
			t.Errorf("the limit is back: %s", got)
		}
	})
}

// Stating a pin again, replacing it, taking it away, dry runs, versions that moved,
// and bad input.
func TestPinAndUnpin(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		clock := newClock()
		store := Open(open(), clock.Now)
		apply(t, store, pinFile)
		off := quota.Pin{Limit: "a", Mode: quota.ModeOff, Reason: "one"}
		dry, err := store.PinLimits(t.Context(), off, 0, "ops", nil, true)
		if err != nil || !dry.Changes() || len(load(t, store).Pins()) != 0 {
			t.Errorf("a dry run: %+v, %v", dry, err)
		}
		if change := pinNow(t, store, off, 0); change.Count(Added) != 1 || change.Version != 2 {
			t.Errorf("pinned: %+v", change)
		}
		clock.Advance(time.Hour)
		if change := pinNow(t, store, off, 0); change.Changes() {
			t.Errorf("pinned again: %+v", change)
		}
		if since := load(t, store).Pins()[0].Since; !since.Equal(newClock().Now()) {
			t.Errorf("the pin is since %s", since)
		}
		if change := pinNow(t, store, off, time.Hour); change.Count(Changed) != 1 || change.Objects[0].Fields[0].Path != "until" {
			t.Errorf("with an end: %+v", change)
		}
		off.Mode, off.Reason = quota.ModeShadow, "two"
		change := pinNow(t, store, off, 0)
		if !strings.Contains(change.String(), "mode: off -> shadow") || !strings.Contains(change.String(), "reason: one -> two") {
			t.Errorf("replaced: %s", change)
		}
		if pin := load(t, store).Pins()[0]; pin.By != "ops" || !pin.Since.Equal(clock.Now()) || !pin.Until.IsZero() {
			t.Errorf("replaced: %+v", pin)
		}
		old := int64(1)
		if _, err := store.PinLimits(t.Context(), off, 0, "ops", &old, false); !errors.Is(err, ErrVersionMoved) {
			t.Errorf("another version: %v", err)
		}
		if _, err := store.UnpinLimits(t.Context(), Switch{All: true, IfVersion: &old}, "ops", false); !errors.Is(err, ErrVersionMoved) {
			t.Errorf("another version: %v", err)
		}
		for _, none := range []Switch{{Limit: "b"}, {Limit: "a", Plan: "pro"}} {
			if _, err := store.UnpinLimits(t.Context(), none, "ops", false); !errors.Is(err, ErrNotFound) {
				t.Errorf("%+v: %v", none, err)
			}
		}
		for _, bad := range []Switch{{}, {Limit: "a", All: true}, {Limit: "a", Plan: "pro", Pool: "x"}} {
			if _, err := store.UnpinLimits(t.Context(), bad, "ops", false); err == nil {
				t.Errorf("%+v was accepted", bad)
			}
		}
		if change, err := store.UnpinLimits(t.Context(), Switch{Limit: "a"}, "ops", true); err != nil || change.Count(Removed) != 1 || len(load(t, store).Pins()) != 1 {
			t.Errorf("a dry run: %+v, %v", change, err)
		}
		if change, err := store.UnpinLimits(t.Context(), Switch{Limit: "a"}, "ops", false); err != nil || change.Count(Removed) != 1 || len(load(t, store).Pins()) != 0 {
			t.Errorf("taken away: %+v, %v", change, err)
		}
		before := load(t, store).Version
		if change, err := store.UnpinLimits(t.Context(), Switch{All: true}, "ops", false); err != nil || change.Changes() || load(t, store).Version != before {
			t.Errorf("nothing is left to take away: %+v, %v", change, err)
		}
		// The places of a name: all of them, or the one.
		for _, place := range []quota.Pin{{Limit: "a"}, {Limit: "a", Plan: "pro"}, {Limit: "a", Account: "acme"}, {Account: "acme"}} {
			place.Mode = quota.ModeOff
			pinNow(t, store, place, 0)
		}
		for _, step := range []struct {
			which Switch
			gone  int
		}{{Switch{Limit: "a", Plan: "pro"}, 1}, {Switch{All: true, Account: "acme"}, 2}, {Switch{Limit: "a"}, 1}} {
			if change, err := store.UnpinLimits(t.Context(), step.which, "ops", false); err != nil || change.Count(Removed) != step.gone {
				t.Errorf("%+v: %+v, %v", step.which, change, err)
			}
		}
		for _, c := range []struct {
			pin   quota.Pin
			span  time.Duration
			by    string
			field string
		}{
			{quota.Pin{Limit: "a", Mode: "silent"}, 0, "ops", "mode"},
			{quota.Pin{Limit: "a", Plan: "pro", Account: "acme", Mode: quota.ModeOff}, 0, "ops", "plan"},
			{quota.Pin{Limit: "a", Mode: quota.ModeOff, Reason: strings.Repeat("x", 501)}, 0, "ops", "reason"},
			{quota.Pin{Limit: "a", Mode: quota.ModeOff}, time.Second, "ops", "for"},
			{quota.Pin{Limit: "a", Mode: quota.ModeOff}, 31 * 24 * time.Hour, "ops", "for"},
			{quota.Pin{Limit: "a", Mode: quota.ModeOff}, -time.Hour, "ops", "for"},
			{quota.Pin{Limit: "a", Mode: quota.ModeOff}, 0, "", "by"},
		} {
			if _, err := store.PinLimits(t.Context(), c.pin, c.span, c.by, nil, false); err == nil || !strings.Contains(err.Error(), c.field+":") {
				t.Errorf("%+v for %s: %v, want a fault of %s", c.pin, c.span, err, c.field)
			}
		}
	})
}

// A pin with an end ends on every node by its clock, with nothing written; the next
// change of pins sweeps what is left of it.
func TestPinsEndByTheClock(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		clock := newClock()
		store := Open(open(), clock.Now)
		apply(t, store, pinFile)
		var log bytes.Buffer
		registry := prometheus.NewRegistry()
		w := watch(t, Open(open(), clock.Now), WatcherConfig{Registerer: registry, Log: slog.New(slog.NewTextHandler(&log, nil))})
		pinNow(t, store, quota.Pin{Mode: quota.ModeOff, Reason: "night"}, 2*time.Hour)
		pinNow(t, store, quota.Pin{Limit: "b", Mode: quota.ModeEnforce}, 0)
		if err := w.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		version := w.Current().Version
		gauges := func(want ...float64) {
			t.Helper()
			got := metrics(t, registry)
			for i, mode := range []string{"enforce", "shadow", "off"} {
				if got["pins "+mode] != want[i] {
					t.Errorf("pins %s = %v, want %v", mode, got["pins "+mode], want[i])
				}
			}
		}
		gauges(1, 0, 1)
		clock.Advance(2*time.Hour - time.Microsecond)
		if got := inForce(t, w.Current(), "acme"); got != "a=off b=enforce" {
			t.Errorf("before the end: %s", got)
		}
		held := w.Current()
		clock.Advance(time.Microsecond)
		if got := inForce(t, w.Current(), "acme"); got != "a=enforce b=enforce" || w.Current().Version != version {
			t.Errorf("at the end: %s at version %d", got, w.Current().Version)
		}
		if got := inForce(t, held, "acme"); got != "a=off b=enforce" {
			t.Errorf("a policy that was handed out changed: %s", got)
		}
		gauges(1, 0, 0)
		for _, line := range []string{`limits="every limit" mode=off by=ops since=2026-11-15T09:30:00.123Z`, "reason=night", "a pin has ended"} {
			if strings.Count(log.String(), line) != 1 {
				t.Errorf("%q is not once in\n%s", line, &log)
			}
		}
		if got, err := store.Version(t.Context()); err != nil || got != version {
			t.Errorf("the end wrote: version %d after %d, %v", got, version, err)
		}
		// A node that starts now never sees it, and a new pin of the name is a new one.
		if got := inForce(t, watch(t, Open(open(), clock.Now), WatcherConfig{}).Current(), "beta"); got != "a=enforce" {
			t.Errorf("a node that starts later: %s", got)
		}
		if change, err := store.UnpinLimits(t.Context(), Switch{All: true}, "ops", true); err != nil || change.Count(Removed) != 1 {
			t.Errorf("what there is to take away: %+v, %v", change, err)
		}
		if change := pinNow(t, store, quota.Pin{Mode: quota.ModeOff}, time.Minute); change.Count(Added) != 1 {
			t.Errorf("the name again: %+v", change)
		}
		clock.Advance(time.Minute)
		pinNow(t, store, quota.Pin{Limit: "a", Mode: quota.ModeOff}, 0)
		var rows int
		if err := open().QueryRow(`SELECT count(*) FROM limit_pins`).Scan(&rows); err != nil || rows != 2 {
			t.Errorf("%d rows are left, %v", rows, err)
		}
	})
}

// Pins, switches and applies at the same time take effect one after the other, and
// none is lost.
func TestPinsAndAppliesAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		first := Open(open(), nil)
		apply(t, first, pinFile)
		var wait sync.WaitGroup
		for _, account := range []string{"acme", "beta"} {
			for _, mode := range []quota.Mode{quota.ModeOff, quota.ModeShadow} {
				store := Open(open(), nil)
				wait.Go(func() {
					for range 5 {
						if _, err := store.PinLimits(t.Context(), quota.Pin{Limit: "a", Account: account, Mode: mode}, 0, "ops", nil, false); err != nil {
							t.Error(err)
						}
						if _, err := store.SwitchLimits(t.Context(), Switch{Limit: "a", Mode: mode}, "ops", false); err != nil {
							t.Error(err)
						}
						if _, err := store.Apply(t.Context(), parse(t, pinFile), Options{By: "ci"}); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		wait.Wait()
		apply(t, first, pinFile)
		policy := load(t, first)
		if len(policy.Pins()) != 2 || policy.Plans["pro"].Limits[0].Mode != "" {
			t.Errorf("pins %v above mode %q", policy.Pins(), policy.Plans["pro"].Limits[0].Mode)
		}
		history, err := first.History(t.Context(), 0, MaxPage)
		if err != nil || history[0].Version != policy.Version || len(history) != int(policy.Version) {
			t.Errorf("%d changes led to version %d, %v", len(history), policy.Version, err)
		}
	})
}

// A pin that a newer version wrote is not read as if it said less.
func TestABrokenPin(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		store := Open(open(), nil)
		apply(t, store, pinFile)
		pinNow(t, store, quota.Pin{Limit: "a", Mode: quota.ModeOff}, 0)
		for _, document := range []string{`{"limit":"a","mode":"off","by":"ops","since_us":1,"only_for":"b"}`, `{"limit":"b","mode":"off","by":"ops","since_us":1}`, `{"limit":"a","mode":"loud","by":"ops","since_us":1}`} {
			if _, err := open().Exec(`UPDATE limit_pins SET document = $1`, document); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Load(t.Context()); !errors.Is(err, ErrBroken) {
				t.Errorf("%s: %v", document, err)
			}
		}
	})
}
