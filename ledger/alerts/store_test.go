package alerts

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// However many nodes raise the same alerts at once, in whatever order, each is
// raised by one call.
func TestRaisedOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		at := newClock().Now()
		var events []Event
		for percent := 1; percent <= 40; percent++ {
			events = append(events, event("acme", percent, at))
		}
		var total atomic.Int64
		var wait sync.WaitGroup
		for node := range 4 {
			store := open()
			own := slices.Clone(events)
			if node%2 == 1 {
				slices.Reverse(own)
			}
			wait.Go(func() {
				for range 3 {
					raised, err := store.Raise(t.Context(), own, true)
					if err != nil {
						t.Error(err)
						return
					}
					for _, r := range raised {
						if r {
							total.Add(1)
						}
					}
				}
			})
		}
		wait.Wait()
		if total.Load() != 40 {
			t.Errorf("40 alerts were raised %d times", total.Load())
		}
		if got := raise(t, open(), true, event("acme", 99, at), event("acme", 1, at), event("acme", 99, at)); !slices.Equal(got, []bool{true, false, false}) {
			t.Errorf("a new one, a known one, the new one again: %v", got)
		}
	})
}

// What is an alert of its own: each account, limit, scope, period and percent.
func TestWhatAnAlertIs(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		store, at := open(), newClock().Now()
		first := event("acme", 80, at)
		events := []Event{first}
		for _, change := range []func(*Event){
			func(e *Event) { e.Account = "acm" },
			func(e *Event) { e.Limit = "spend.ffffffff" },
			func(e *Event) { e.Scope = "team=red" },
			func(e *Event) { e.Period = "m2026-12-01" },
			func(e *Event) { e.Percent = 100 },
			func(e *Event) { e.Account, e.Limit = "acmes", "pend.0a1b2c3d" }, // the same bytes one after the other
		} {
			e := first
			change(&e)
			events = append(events, e)
		}
		if got := raise(t, store, false, events...); slices.Contains(got, false) {
			t.Errorf("raised: %v", got)
		}
		again := first
		again.Used, again.Amount, again.LimitName, again.RaisedAt = 1, 2, "renamed", at.Add(time.Hour)
		if got := raise(t, store, true, again); got[0] {
			t.Error("the same alert with other figures is raised again")
		}
		keys := []ledger.UsageKey{events[3].UsageKey, {Account: "nobody"}, first.UsageKey}
		got, err := store.Raised(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		want := [][]quota.Alert{{{Percent: 80, RaisedAt: first.RaisedAt}}, nil, {{Percent: 80, RaisedAt: first.RaisedAt}, {Percent: 100, RaisedAt: first.RaisedAt}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestListAndPrune(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		store, now := open(), newClock()
		for i := range 7 {
			raise(t, store, i == 6, event([]string{"acme", "beta"}[i%2], 10+i, now.Now()))
			if i%3 != 0 { // some at the same instant
				now.Add(time.Minute)
			}
		}
		all := list(t, store, "")
		if len(all) != 7 || !slices.IsSortedFunc(all, func(a, b Alert) int { return b.RaisedAt.Compare(a.RaisedAt) }) {
			t.Fatalf("%d alerts, not the newest first: %+v", len(all), all)
		}
		var paged []Alert
		for after := ""; ; {
			page, err := store.List(t.Context(), Query{After: after, Limit: 2})
			if err != nil {
				t.Fatal(err)
			}
			paged = append(paged, page.Alerts...)
			if after = page.Next; after == "" {
				break
			}
		}
		if diff := cmp.Diff(all, paged); diff != "" {
			t.Error("by pages of 2:", diff)
		}
		if got := list(t, store, "beta"); len(got) != 3 || got[0].Account != "beta" {
			t.Errorf("of beta: %+v", got)
		}
		for name, q := range map[string]Query{
			"limit 0": {}, "limit too large": {Limit: MaxPage + 1}, "cursor": {Limit: 1, After: "x"}, "cursor with more": {Limit: 1, After: "1.a b"},
		} {
			if _, err := store.List(t.Context(), q); !errors.Is(err, ErrQuery) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// What waits to be delivered is not removed, however old.
		if n, err := store.Prune(t.Context(), now.Now().Add(time.Hour), 4); n != 4 || err != nil {
			t.Errorf("pruned %d, %v; want 4", n, err)
		}
		if n, err := store.Prune(t.Context(), now.Now().Add(time.Hour), 4); n != 2 || err != nil {
			t.Errorf("pruned %d, %v; want 2", n, err)
		}
		if left := list(t, store, ""); len(left) != 1 || left[0].State != StatePending {
			t.Errorf("left: %+v", left)
		}
	})
}

// Nodes that claim at once never have the same alert; what a node has claimed
// and not finished is due again when its claim ends.
func TestClaim(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		now := newClock()
		store := open()
		for i := range 30 {
			raise(t, store, true, event("acme", i+1, now.Now()))
		}
		raise(t, store, false, event("quiet", 1, now.Now()))
		var mu sync.Mutex
		taken := map[string]int{}
		var wait sync.WaitGroup
		for range 5 {
			store := open()
			wait.Go(func() {
				for range 8 {
					claimed, err := store.Claim(t.Context(), now.Now(), time.Minute, 4)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					for _, a := range claimed {
						taken[a.ID]++
					}
					mu.Unlock()
				}
			})
		}
		wait.Wait()
		if len(taken) != 30 {
			t.Errorf("%d of 30 were claimed", len(taken))
		}
		for id, n := range taken {
			if n != 1 {
				t.Errorf("%s was claimed %d times at once", id, n)
			}
		}
		if n, err := store.Pending(t.Context()); n != 30 || err != nil {
			t.Errorf("%d pending, %v", n, err)
		}
		now.Add(time.Minute - time.Microsecond)
		if early, err := store.Claim(t.Context(), now.Now(), time.Minute, 4); len(early) != 0 || err != nil {
			t.Errorf("claimed before the claim has ended: %+v, %v", early, err)
		}
		now.Add(time.Microsecond)
		again, err := store.Claim(t.Context(), now.Now(), time.Minute, 4)
		if err != nil || len(again) != 4 || again[0].Attempts != 2 {
			t.Fatalf("claimed after its end: %+v, %v", again, err)
		}
		// The node that was thought dead comes back: its failures count no more,
		// its delivery does.
		late := again[0]
		late.Attempts = 1
		for _, note := range []error{
			store.Retry(t.Context(), late, now.Now(), "late"),
			store.Fail(t.Context(), late, now.Now(), "late"),
			store.Fail(t.Context(), again[0], now.Now(), strings.Repeat("é\x00", 300)),
			store.Retry(t.Context(), again[0], now.Now(), "after the end"),
		} {
			if note != nil {
				t.Fatal(note)
			}
		}
		find := func(id string) Alert {
			for _, a := range list(t, store, "") {
				if a.ID == id {
					return a
				}
			}
			t.Fatalf("no %s", id)
			return Alert{}
		}
		if a := find(late.ID); a.State != StateFailed || !a.FailedAt.Equal(now.Now()) || len(a.LastError) != MaxErrorBytes-1 && len(a.LastError) != MaxErrorBytes {
			t.Errorf("given up: %+v", a)
		}
		if err := store.Delivered(t.Context(), late.ID, now.Now()); err != nil {
			t.Fatal(err)
		}
		if err := store.Delivered(t.Context(), late.ID, now.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if a := find(late.ID); a.State != StateDelivered || !a.DeliveredAt.Equal(now.Now()) {
			t.Errorf("delivered after all: %+v", a)
		}
		if n, err := store.Pending(t.Context()); n != 29 || err != nil {
			t.Errorf("%d pending, %v", n, err)
		}
	})
}

// An alert's id is what receivers recognize it by: it does not change. (The
// figure is of Python's hashlib and struct.)
func TestIDStays(t *testing.T) {
	e := event("acme", 80, newClock().Now())
	if got, want := e.ID(), "alert_1508f8d1704c22db091d70963c63726b"; got != want {
		t.Errorf("%s, want %s: stored alerts would be raised anew", got, want)
	}
}
