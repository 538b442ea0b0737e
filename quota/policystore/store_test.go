package policystore

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
)

const firstFile = `
plans:
  free:
    limits:
      - {name: requests, meter: requests, rate: 60/min}
  pro:
    limits:
      - {name: requests, meter: requests, rate: 600/min, burst: 100}
      - {name: tokens, meter: tokens, rate: 200000/min, per: [model, user], match: {provider: [openai, "azure-*"]}, when_down: open}
      - {name: in-flight, meter: in_flight, max: 20, match: {route: slow}, on_expiry: charge}
      - {name: points, meter: points, rate: 5000/h, costs: [{match: {op: write}, weight: 5}, {weight: 2}]}
    quotas:
      - {name: spend, meter: cost, amount: $500, period: month, soft: true, alert_at: [50%, 100%]}
pools:
  openai-org: {meter: tokens, rate: 10M/min, match: {provider: openai}}
accounts:
  acme:
    plan: pro
    time_zone: Asia/Tokyo
    anchor_day: 15
    grants:
      - {name: goodwill, limit: spend, amount: $0.000000001, from: 2026-11-01T00:00:00.25Z, priority: -5, reason: "outage <of> the 1st"}
      - {name: top-up, limit: spend, amount: $20, from: 2026-11-02, until: 2027-01-01}
  beta:
    plan: free
    limits:
      - {name: requests, meter: requests, rate: 120/min}
prices:
  openai/gpt-4o-mini:
    - {from: 2026-11-01, input: $0.15, output: $0.60, cache_read: $0.075}
    - {from: 2026-12-01, input: $0.10, output: $0.40}
`

func parse(t *testing.T, text string) *policyfile.Document {
	t.Helper()
	doc, err := policyfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func apply(t *testing.T, store *Store, text string) Change {
	t.Helper()
	change, err := store.Apply(t.Context(), parse(t, text), Options{By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return change
}

func load(t *testing.T, store *Store) *quota.Policy {
	t.Helper()
	policy, err := store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

var samePolicy = cmpopts.IgnoreUnexported(quota.Policy{})

func TestApplyAndLoad(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		store := Open(open(), now.Now)
		if policy := load(t, store); policy.Version != 0 || len(policy.Plans)+len(policy.Pools)+len(policy.Accounts) != 0 {
			t.Errorf("an empty store has %+v", policy)
		}
		change := apply(t, store, firstFile)
		if change.From != 0 || change.Version != 1 || change.By != "test" || !change.At.Equal(now.Now()) || change.Count(Added) != 6 || len(change.Objects) != 6 {
			t.Errorf("change = %+v", change)
		}
		want, err := parse(t, firstFile).Policy(1)
		if err != nil {
			t.Fatal(err)
		}
		// Another node reads the same policy, which decides the same.
		got := load(t, Open(open(), nil))
		if diff := cmp.Diff(want, got, samePolicy, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		for _, account := range []string{"acme", "beta"} {
			wantLimits, _ := want.Limits(account)
			gotLimits, err := got.Limits(account)
			if diff := cmp.Diff(wantLimits, gotLimits, cmpopts.EquateEmpty()); diff != "" || err != nil {
				t.Errorf("limits of %s: %s %v", account, diff, err)
			}
		}
		if version, err := store.Version(t.Context()); version != 1 || err != nil {
			t.Errorf("Version = %d, %v", version, err)
		}
	})
}

// The same again changes nothing, however it is written; nor does a policy
// that went out and came in again.
func TestApplyAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		store := Open(db, nil)
		apply(t, store, firstFile)
		otherwise := strings.NewReplacer(
			"rate: 60/min}", "rate: 60/min, burst: 60, when_down: closed, on_expiry: give_back}",
			"per: [model, user]", "per: [user, account, model]",
			"plan: free\n", "plan: free\n    time_zone: UTC\n    anchor_day: 1\n",
		).Replace(firstFile)
		if otherwise == firstFile {
			t.Fatal("nothing is written otherwise")
		}
		for _, doc := range []*policyfile.Document{parse(t, firstFile), parse(t, otherwise), policyfile.FromPolicy(load(t, store)), {}} {
			change, err := store.Apply(t.Context(), doc, Options{By: "test"})
			if err != nil {
				t.Fatal(err)
			}
			if change.Changes() || change.Version != 1 || change.From != 1 || len(change.Objects) != change.Count(Unchanged) {
				t.Errorf("change = %+v\n%s", change, change)
			}
		}
		var rows int
		if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM policy_changes`).Scan(&rows); err != nil || rows != 6 {
			t.Errorf("the history has %d rows, %v, want 6", rows, err)
		}
	})
}

func TestChangeIsReadable(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		store := Open(open(), nil)
		apply(t, store, firstFile)
		second := `
plans:
  pro:
    limits:
      - {name: tokens, meter: tokens, rate: 10M/min, per: [model], match: {provider: [openai, "azure-*"]}, when_down: closed}
      - {name: requests, meter: requests, rate: 600/min, burst: 100}
      - {name: in-flight, meter: in_flight, max: 20, match: {route: slow}, on_expiry: charge}
    quotas:
      - {name: spend, meter: cost, amount: $1500.5, period: month}
      - {name: daily, meter: tokens, amount: 1000000, period: day}
  team:
    limits:
      - {name: spend-rate, meter: cost, rate: $5/min, per: [key]}
pools:
  openai-org: {meter: tokens, rate: 10M/min, match: {provider: openai}}
accounts:
  acme: {plan: team, time_zone: Europe/Berlin, anchor_day: 15}
prices:
  openai/gpt-4o-mini:
    - {from: 2026-11-01, input: $0.15, output: $0.60}
    - {from: 2027-01-01T12:00:00+09:00, input: $0.10, output: $0}
`
		want := `~ plan pro
    limits.tokens.rate: 200000/min -> 10M/min
    limits.tokens.burst: 200000 -> 10M
    limits.tokens.per: [model user] -> [model]
    limits.tokens.when_down: open -> closed
    limits.spend.amount: $500.00 -> $1500.50
    limits.daily.meter: tokens
    limits.daily.amount: 1M
    limits.daily.period: day
    limits.daily.when_down: closed
    limits.daily.on_expiry: give_back
    limits.points.meter: points -> (gone)
    limits.points.rate: 5000/h -> (gone)
    limits.points.burst: 5000 -> (gone)
    limits.points.costs[0]: op=write weighs 5 -> (gone)
    limits.points.costs[1]: any call weighs 2 -> (gone)
    limits.points.when_down: closed -> (gone)
    limits.points.on_expiry: give_back -> (gone)
    limits.spend.soft: true -> (gone)
    limits.spend.alert_at: [50% 100%] -> (gone)
+ plan team
    limits.spend-rate.meter: cost
    limits.spend-rate.rate: $5.00/min
    limits.spend-rate.burst: $5.00
    limits.spend-rate.per: [key]
    limits.spend-rate.when_down: closed
    limits.spend-rate.on_expiry: give_back
~ account acme
    plan: pro -> team
    time_zone: Asia/Tokyo -> Europe/Berlin
    grants.goodwill.limit: spend -> (gone)
    grants.goodwill.amount: $0.000000001 -> (gone)
    grants.goodwill.from: 2026-11-01T00:00:00.25Z -> (gone)
    grants.goodwill.priority: -5 -> (gone)
    grants.goodwill.reason: outage <of> the 1st -> (gone)
    grants.top-up.limit: spend -> (gone)
    grants.top-up.amount: $20.00 -> (gone)
    grants.top-up.from: 2026-11-02T00:00:00Z -> (gone)
    grants.top-up.until: 2027-01-01T00:00:00Z -> (gone)
    grants.top-up.priority: 0 -> (gone)
~ price openai/gpt-4o-mini
    2027-01-01T03:00:00Z.input: $0.10
    2027-01-01T03:00:00Z.output: $0.00
    2026-11-01T00:00:00Z.cache_read: $0.075 -> (gone)
    2026-12-01T00:00:00Z.input: $0.10 -> (gone)
    2026-12-01T00:00:00Z.output: $0.40 -> (gone)
1 added, 3 changed, 0 removed, 1 unchanged
`
		diff, err := store.Diff(t.Context(), parse(t, second), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, diff.String()); d != "" {
			t.Error(d)
		}
		if diff.From != 1 || diff.Version != 2 {
			t.Errorf("the difference goes from %d to %d", diff.From, diff.Version)
		}
		if version, err := store.Version(t.Context()); version != 1 || err != nil {
			t.Errorf("Diff left version %d, %v", version, err)
		}
		change := apply(t, store, second)
		if d := cmp.Diff(diff.Objects, change.Objects); d != "" {
			t.Errorf("Apply does not do what Diff says: %s", d)
		}
		// The order of limits alone is a change too.
		third := strings.Replace(strings.Replace(second, "{name: spend,", "{name: SWAP,", 1), "{name: daily,", "{name: spend,", 1)
		third = strings.Replace(third, "{name: SWAP, meter: cost, amount: $1500.5, period: month}", "{name: daily, meter: tokens, amount: 1000000, period: day}", 1)
		third = strings.Replace(third, "{name: spend, meter: tokens, amount: 1000000, period: day}", "{name: spend, meter: cost, amount: $1500.5, period: month}", 1)
		order := apply(t, store, third)
		if want := "~ plan pro\n    order: [tokens requests in-flight spend daily] -> [tokens requests in-flight daily spend]\n"; !strings.HasPrefix(order.String(), want) {
			t.Errorf("change = %s, want %s", order, want)
		}
	})
}

// What would not be valid as a whole is refused, and nothing is written.
func TestApplyRefuses(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		store := Open(open(), nil)
		apply(t, store, firstFile)
		before := load(t, store)
		one := int64(1)
		zero := int64(0)
		for _, c := range []struct {
			name, file string
			options    Options
			want       string
			is         error
		}{
			{"an account without a plan", "accounts: {new: {plan: nowhere}}", Options{By: "x"}, "accounts.new.plan: there is no plan \"nowhere\"", nil},
			{"a plan that accounts have", "plans: {other: {limits: [{name: a, meter: tokens, rate: 1/s}]}}", Options{By: "x", Prune: true}, "accounts.acme.plan: there is no plan \"pro\"", nil},
			{"nobody", "accounts: {acme: {plan: free}}", Options{}, "by: it is empty", nil},
			{"a line", "accounts: {acme: {plan: free}}", Options{By: "a\nb"}, "by: it contains a control", nil},
			{"no text", "accounts: {acme: {plan: free}}", Options{By: "\xff"}, "by: it is not valid UTF-8", nil},
			{"a novel", "accounts: {acme: {plan: free}}", Options{By: strings.Repeat("x", 129)}, "by: it has 129 bytes", nil},
			{"another version", "accounts: {acme: {plan: free}}", Options{By: "x", IfVersion: &zero}, "it is at version 1 and not 0", ErrVersionMoved},
		} {
			change, err := store.Apply(t.Context(), parse(t, c.file), c.options)
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrUnavailable) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s: %v, %v, want an error with %q", c.name, change, err, c.want)
			}
			if c.options.By == "x" {
				if _, diffErr := store.Diff(t.Context(), parse(t, c.file), c.options); diffErr == nil || diffErr.Error() != err.Error() {
					t.Errorf("%s: Diff says %v and Apply %v", c.name, diffErr, err)
				}
			}
		}
		if _, err := store.Apply(t.Context(), parse(t, "accounts: {new: {plan: nowhere}}"), Options{By: "x"}); len(quota.FieldErrors(err)) != 1 {
			t.Errorf("the faults of %v are lost", err)
		}
		if diff := cmp.Diff(before, load(t, store), samePolicy); diff != "" {
			t.Errorf("a refused change left traces: %s", diff)
		}
		if history, err := store.History(t.Context(), 0, 10); err != nil || len(history) != 1 {
			t.Errorf("the history has %d changes, %v, want 1", len(history), err)
		}
		if _, err := store.Apply(t.Context(), parse(t, "accounts: {acme: {plan: free}}"), Options{By: "x", IfVersion: &one}); err != nil {
			t.Errorf("at the version that was looked at: %v", err)
		}
	})
}

func TestPrune(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		store := Open(open(), nil)
		apply(t, store, firstFile)
		prune := Options{By: "test", Prune: true}
		change, err := store.Apply(t.Context(), parse(t, `
plans: {free: {limits: [{name: requests, meter: requests, rate: 60/min}]}}
accounts: {beta: {plan: free}}
prices: {openai/gpt-4o: [{from: 2026-11-01, input: $2.50, output: $10}]}
`), prune)
		if err != nil {
			t.Fatal(err)
		}
		want := "- plan pro\n- account acme\n~ account beta\n"
		if got := change.String(); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "\n- price openai/gpt-4o-mini\n1 added, 1 changed, 3 removed, 1 unchanged\n") {
			t.Errorf("change = %s", got)
		}
		policy := load(t, store)
		if len(policy.Plans) != 1 || len(policy.Accounts) != 1 || len(policy.Pools) != 1 || policy.Version != 2 {
			t.Errorf("%d plans, %d accounts, %d pools; want 1, 1, and the pool, of whose kind nothing was stated", len(policy.Plans), len(policy.Accounts), len(policy.Pools))
		}
		if change, err := store.Apply(t.Context(), &policyfile.Document{}, prune); err != nil || change.Changes() {
			t.Errorf("an empty document pruned: %s, %v", change, err)
		}
	})
}

func TestHistory(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		store := Open(open(), now.Now)
		var want []Change
		for i := range 5 {
			now.Advance(time.Hour)
			change, err := store.Apply(t.Context(), parse(t, fmt.Sprintf("plans: {p: {limits: [{name: a, meter: tokens, rate: %d/s}]}, q%d: {limits: [{name: a, meter: tokens, rate: 1/s}]}}", i+1, i)), Options{By: fmt.Sprint("person ", i)})
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, change)
		}
		removed, err := store.Remove(t.Context(), KindPlan, "q3", "cleaner")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, removed)
		slices.Reverse(want)
		history, err := store.History(t.Context(), 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, history, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		page, err := store.History(t.Context(), 5, 2)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[2:4], page); diff != "" {
			t.Errorf("versions 4 and 3: %s", diff)
		}
		for _, limit := range []int{0, -1, 1001} {
			if _, err := store.History(t.Context(), 0, limit); err == nil {
				t.Errorf("limit %d is accepted", limit)
			}
		}
	})
}

func TestAccounts(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		store := Open(open(), now.Now)
		apply(t, store, "plans: {free: {limits: [{name: a, meter: tokens, rate: 1/s}]}, pro: {limits: [{name: a, meter: tokens, rate: 9/s}]}}")
		// Names that collations, quoting and case folding could confuse.
		names := []string{"a", "A", "a.b", "a-b", "a_b", "a:b", "a@b", "Z9", "zz", "0", strings.Repeat("x", 128), "DROP", "a--", "B", "b"}
		for _, name := range names {
			change, err := store.CreateAccount(t.Context(), quota.Account{Name: name, Plan: "free"}, "signup")
			if err != nil || change.Count(Added) != 1 || change.Objects[0].Name != name {
				t.Fatalf("%s: %+v, %v", name, change, err)
			}
		}
		slices.Sort(names)
		for _, size := range []int{1, 4, 1000} {
			var listed []string
			for after := ""; ; after = listed[len(listed)-1] {
				page, err := store.Accounts(t.Context(), after, size)
				if err != nil {
					t.Fatal(err)
				}
				for _, account := range page {
					listed = append(listed, account.Name)
				}
				if len(page) < size {
					break
				}
			}
			if diff := cmp.Diff(names, listed); diff != "" {
				t.Errorf("by %d: %s", size, diff)
			}
		}
		if version, _ := store.Version(t.Context()); version != int64(len(names))+1 {
			t.Errorf("version = %d after %d accounts", version, len(names))
		}
		if _, err := store.CreateAccount(t.Context(), quota.Account{Name: "a", Plan: "pro"}, "signup"); !errors.Is(err, ErrAccountExists) || errors.Is(err, ErrUnavailable) {
			t.Errorf("an account again: %v", err)
		}
		if _, err := store.ChangeAccount(t.Context(), "nobody", func(*quota.Account) {}, "upgrade"); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnavailable) {
			t.Errorf("an account that is not there: %v", err)
		}
		change, err := store.SetAccount(t.Context(), quota.Account{Name: "a", Plan: "pro", AnchorDay: 31}, "upgrade")
		if err != nil || change.String() != "~ account a\n    plan: free -> pro\n    anchor_day: 1 -> 31\n0 added, 1 changed, 0 removed, 0 unchanged\n" {
			t.Errorf("%s, %v", change, err)
		}
		if change, err := store.SetAccount(t.Context(), quota.Account{Name: "a", Plan: "pro", AnchorDay: 31, TimeZone: "UTC"}, "upgrade"); err != nil || change.Changes() {
			t.Errorf("what it is already: %s, %v", change, err)
		}
		for want, account := range map[string]quota.Account{
			"there is no plan \"gold\"":     {Name: "new", Plan: "gold"},
			"is not an account name":        {Name: "a b", Plan: "free"},
			"is not an IANA time zone":      {Name: "new", Plan: "free", TimeZone: "Mars/Olympus"},
			"is not a day of the month":     {Name: "new", Plan: "free", AnchorDay: 32},
			"the plan and the overrides":    {Name: "new", Plan: "free", Overrides: manyLimits(64)},
			"\"\" is not a name; use 1 to ": {Name: "new"},
		} {
			if _, err := store.CreateAccount(t.Context(), account, "signup"); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, ErrUnavailable) {
				t.Errorf("%+v: %v, want %q", account, err, want)
			}
		}
		for _, limit := range []int{0, -1, 1001} {
			if _, err := store.Accounts(t.Context(), "", limit); err == nil {
				t.Errorf("limit %d is accepted", limit)
			}
		}
	})
}

func manyLimits(n int) []quota.Limit {
	limits := make([]quota.Limit, n)
	for i := range limits {
		limits[i] = quota.Limit{Name: fmt.Sprint("l", i), Meter: quota.MeterTokens, Kind: quota.KindBucket, Rate: quota.Rate{Amount: 1, Every: time.Second}}
	}
	return limits
}

func TestRemove(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		store := Open(open(), nil)
		apply(t, store, firstFile)
		if _, err := store.Remove(t.Context(), KindPlan, "pro", "x"); err == nil || !strings.Contains(err.Error(), "accounts.acme.plan") {
			t.Errorf("a plan that an account has: %v", err)
		}
		for _, o := range []struct {
			kind Kind
			name string
		}{{KindAccount, "acme"}, {KindPlan, "pro"}, {KindPool, "openai-org"}, {KindPrice, "openai/gpt-4o-mini"}} {
			change, err := store.Remove(t.Context(), o.kind, o.name, "x")
			if err != nil || change.Count(Removed) != 1 {
				t.Errorf("%v: %s, %v", o, change, err)
			}
			if _, err := store.Remove(t.Context(), o.kind, o.name, "x"); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnavailable) {
				t.Errorf("%v again: %v", o, err)
			}
		}
		if _, err := store.Remove(t.Context(), "table", "plans", "x"); err == nil || !strings.Contains(err.Error(), "kind") {
			t.Errorf("an unknown kind: %v", err)
		}
		policy := load(t, store)
		if len(policy.Plans) != 1 || len(policy.Pools) != 0 || len(policy.Accounts) != 1 || len(policy.Prices) != 0 || policy.Version != 5 {
			t.Errorf("left: %+v", policy)
		}
	})
}

// Applies and sign-ups at once: none is lost, versions have no gaps, and each
// change says what it was made on.
func TestConcurrentWriters(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		store := Open(open(), nil)
		apply(t, store, "plans: {free: {limits: [{name: a, meter: tokens, rate: 1/s}]}}")
		const writers, each = 6, 8
		var done sync.WaitGroup
		for w := range writers {
			node := Open(open(), nil)
			done.Go(func() {
				for i := range each {
					var err error
					if w%2 == 0 {
						_, err = node.CreateAccount(t.Context(), quota.Account{Name: fmt.Sprintf("a%d-%d", w, i), Plan: "free"}, "signup")
					} else {
						_, err = node.Apply(t.Context(), mustParse("accounts: {a%d-%d: {plan: free}, shared: {plan: free, anchor_day: %d}}", w, i, (w*each+i)%28+1), Options{By: fmt.Sprint("writer ", w)})
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		done.Wait()
		policy := load(t, store)
		if len(policy.Accounts) != writers*each+1 || policy.Version != writers*each+1 {
			t.Errorf("%d accounts at version %d, want %d and %d", len(policy.Accounts), policy.Version, writers*each+1, writers*each+1)
		}
		history, err := store.History(t.Context(), 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		day := ""
		for i, change := range slices.Backward(history) {
			if want := int64(len(history) - i); change.Version != want || change.From != want-1 {
				t.Errorf("change %d has version %d", want, change.Version)
			}
			for _, object := range change.Objects {
				for _, f := range object.Fields {
					if object.Name == "shared" && f.Path == "anchor_day" {
						if f.Old != day {
							t.Errorf("version %d changes anchor_day from %q, and it was %q", change.Version, f.Old, day)
						}
						day = f.New
					}
				}
			}
		}
	})
}

func mustParse(format string, values ...any) *policyfile.Document {
	doc, err := policyfile.Parse(fmt.Appendf(nil, format, values...))
	if err != nil {
		panic(err)
	}
	return doc
}

// A store that a newer version wrote, or that someone broke, is refused by the
// name of what is wrong.
func TestBroken(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		store := Open(db, nil)
		for _, c := range []struct{ name, statement, want string }{
			{"a newer word", `UPDATE plans SET document = '{"limits":[],"keep_for":{"interactive":20}}' WHERE name = 'free'`, `plan "free": json: unknown field "keep_for"`},
			{"a newer word in a limit", `UPDATE plans SET document = '{"limits":[{"name":"a","kind":"bucket","forecast":true}]}' WHERE name = 'free'`, `plan "free": json: unknown field "forecast"`},
			{"a newer kind", `UPDATE plans SET document = '{"limits":[{"name":"a","kind":"window"}]}' WHERE name = 'free'`, `plan "free": limits.a.kind: "window" is not a kind`},
			{"a newer rule", `UPDATE plans SET document = '{"limits":[{"name":"a","kind":"slots","meter":"in_flight","max":1,"when_down":"local","on_expiry":"charge"}]}' WHERE name = 'free'`, `plans.free.limits.a.when_down: "local" is not a rule`},
			{"a pool", `UPDATE pools SET document = '{"limit":{"name":"openai-org","kind":"bucket","meter":"tokens","rate":{"amount":1,"every_us":9223372036854775807}}}'`, `pool "openai-org": limits.openai-org.rate.every_us: 9223372036854775807 is not between`},
			{"no JSON", `UPDATE accounts SET document = 'plan: free' WHERE name = 'acme'`, `account "acme": invalid character`},
			{"more than JSON", `UPDATE accounts SET document = '{"plan":"free","time_zone":"UTC","anchor_day":1}{}' WHERE name = 'acme'`, `account "acme": something follows`},
			{"a plan gone", `DELETE FROM plans WHERE name = 'pro'`, `accounts.acme.plan: there is no plan "pro"`},
			{"a newer word in a grant", `UPDATE accounts SET document = '{"plan":"pro","time_zone":"UTC","anchor_day":1,"grants":[{"name":"g","monthly":true}]}' WHERE name = 'acme'`, `account "acme": json: unknown field "monthly"`},
			{"a grant of no quota", `UPDATE accounts SET document = '{"plan":"free","time_zone":"UTC","anchor_day":1,"grants":[{"name":"g","limit":"spend","amount":1,"from_us":0}]}' WHERE name = 'acme'`, `accounts.acme.grants.g.limit: the account has no quota "spend"`},
			{"a price of no class", `UPDATE model_prices SET document = '{"prices":[{"from_us":0,"rates":{"input":1,"output":1,"video":1}}]}'`, `video: it is not a class`},
			{"a price twice", `UPDATE model_prices SET document = '{"prices":[{"from_us":0,"rates":{"input":1,"output":1}},{"from_us":0,"rates":{"input":2,"output":1}}]}'`, `two prices begin at`},
			{"no price", `UPDATE model_prices SET document = '{}'`, `price "openai/gpt-4o-mini": prices are those of`},
			{"overflow", `UPDATE accounts SET document = '{"plan":"free","time_zone":"UTC","anchor_day":99999999999999999999}' WHERE name = 'acme'`, `account "acme": json: cannot unmarshal number`},
		} {
			apply(t, store, firstFile)
			load(t, store)
			if _, err := db.ExecContext(t.Context(), c.statement); err != nil {
				t.Fatal(err)
			}
			policy, err := store.Load(t.Context())
			if policy != nil || !errors.Is(err, ErrBroken) || errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Errorf("%s: %v, %v, want ErrBroken with %s", c.name, policy, err, c.want)
			}
			// Nothing is applied on top of what can't be read.
			if _, err := store.Apply(t.Context(), parse(t, "plans: {x: {limits: [{name: a, meter: tokens, rate: 1/s}]}}"), Options{By: "x"}); err == nil || errors.Is(err, ErrUnavailable) {
				t.Errorf("%s: something was applied on top: %v", c.name, err)
			}
			// The next turn states everything again, which repairs it.
		}
		apply(t, store, firstFile)
		load(t, store)
	})
}

func TestUnavailable(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		store := Open(db, nil)
		db.Close()
		doc := parse(t, firstFile)
		_, loadErr := store.Load(t.Context())
		_, versionErr := store.Version(t.Context())
		_, applyErr := store.Apply(t.Context(), doc, Options{By: "x"})
		_, diffErr := store.Diff(t.Context(), doc, Options{})
		_, createErr := store.CreateAccount(t.Context(), quota.Account{Name: "a", Plan: "free"}, "x")
		_, removeErr := store.Remove(t.Context(), KindPlan, "free", "x")
		_, accountsErr := store.Accounts(t.Context(), "", 1)
		_, historyErr := store.History(t.Context(), 0, 1)
		for i, err := range []error{loadErr, versionErr, applyErr, diffErr, createErr, removeErr, accountsErr, historyErr} {
			if !errors.Is(err, ErrUnavailable) {
				t.Errorf("%d: %v, want ErrUnavailable", i, err)
			}
		}
	})
}

// Whatever limits a policy has, they come back as they went in, and their text
// is always the same.
func TestStoredFormKeepsEverything(t *testing.T) {
	labels := rapid.SampledFrom([]string{"model", "user", "route", "x.y-z_9"})
	text := rapid.StringMatching(`[a-zA-Z0-9 <>&"'\\/é漢-]{0,20}\*?`)
	match := rapid.MapOfN(labels, rapid.SliceOfN(text, 1, 3), 0, 3)
	amount := rapid.Map(rapid.Int64Range(1, int64(quota.MaxAmount)), func(n int64) quota.Amount { return quota.Amount(n) })
	limit := rapid.Custom(func(t *rapid.T) quota.Limit {
		l := quota.Limit{
			Meter:    rapid.SampledFrom([]quota.Meter{quota.MeterTokens, quota.MeterCost, "pages"}).Draw(t, "meter"),
			Kind:     rapid.SampledFrom([]quota.Kind{quota.KindBucket, quota.KindSlots, quota.KindQuota, quota.KindGCRA, quota.KindFixedWindow, quota.KindSlidingCounter, quota.KindSlidingLog, quota.KindLeakyQueue}).Draw(t, "kind"),
			Per:      rapid.SliceOfNDistinct(labels, 0, 3, rapid.ID).Draw(t, "per"),
			Match:    match.Draw(t, "match"),
			WhenDown: rapid.SampledFrom([]quota.DownRule{"", quota.DownClosed, quota.DownOpen}).Draw(t, "when_down"),
			OnExpiry: rapid.SampledFrom([]quota.ExpiryRule{"", quota.ExpiryGiveBack, quota.ExpiryCharge}).Draw(t, "on_expiry"),
		}
		if l.Kind == quota.KindQuota {
			l.Soft = rapid.Bool().Draw(t, "soft")
			l.AlertAt = rapid.SliceOfNDistinct(rapid.IntRange(1, quota.MaxAlertPercent), 0, 3, rapid.ID).Draw(t, "alert_at")
		}
		switch l.Kind {
		case quota.KindBucket:
			l.Rate = quota.Rate{Amount: amount.Draw(t, "rate"), Every: time.Duration(rapid.Int64Range(1000, 86_400_000_000).Draw(t, "every")) * time.Microsecond}
			l.Burst = rapid.OneOf(rapid.Just(quota.Amount(0)), amount).Draw(t, "burst")
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
		}
		if l.Kind.HasRate() && l.Kind != quota.KindLeakyQueue && rapid.Bool().Draw(t, "bounds waits") {
			l.MaxWait = new(time.Duration(rapid.Int64Range(0, 3_600_000).Draw(t, "max wait")) * time.Millisecond)
		}
		if l.Kind != quota.KindSlots {
			for range rapid.IntRange(0, 3).Draw(t, "costs") {
				l.Costs = append(l.Costs, quota.CostRule{Match: match.Draw(t, "match"), Weight: quota.Amount(rapid.Int64Range(1, int64(quota.MaxWeight)).Draw(t, "weight"))})
			}
		}
		return l
	})
	rapid.Check(t, func(t *rapid.T) {
		plan := quota.Plan{Name: "p", Limits: rapid.SliceOfN(limit, 0, 4).Draw(t, "limits")}
		for i := range plan.Limits {
			plan.Limits[i].Name = fmt.Sprint("l", i)
		}
		account := quota.Account{Name: "a", Plan: "p", TimeZone: rapid.SampledFrom([]string{"", "Asia/Tokyo"}).Draw(t, "zone"), AnchorDay: rapid.IntRange(0, 31).Draw(t, "day"), Overrides: rapid.SliceOfN(limit, 0, 2).Draw(t, "overrides")}
		for i := range account.Overrides {
			account.Overrides[i].Name = fmt.Sprint("o", i)
		}
		instant := rapid.Map(rapid.Int64Range(0, 4e15), fromMicros)
		for i, l := range slices.Concat(plan.Limits, account.Overrides) {
			if l.Kind == quota.KindQuota && len(l.Per) == 0 {
				from := instant.Draw(t, "from")
				account.Grants = append(account.Grants, quota.Grant{
					Name: fmt.Sprint("g", i), Limit: l.Name, Amount: amount.Draw(t, "granted"), Money: l.Meter == quota.MeterCost,
					From: from, Until: rapid.SampledFrom([]time.Time{{}, from.Add(time.Microsecond)}).Draw(t, "until"),
					Priority: rapid.IntRange(-100, 100).Draw(t, "priority"), Reason: text.Draw(t, "reason"),
				})
			}
		}
		doc := &policyfile.Document{Plans: []quota.Plan{plan}, Accounts: []quota.Account{account}}
		rate := rapid.Map(rapid.Int64Range(0, int64(quota.MaxPricePerMil)), func(n int64) quota.NanoUSD { return quota.NanoUSD(n) })
		for _, from := range rapid.SliceOfNDistinct(instant, 1, 3, time.Time.UnixMicro).Draw(t, "instants") {
			rates := rapid.MapOf(rapid.SampledFrom(quota.PriceClasses), rate).Draw(t, "rates")
			rates["input"], rates["output"] = rate.Draw(t, "input"), rate.Draw(t, "output")
			tiers := []quota.PriceTier{{Above: 200_000, Rates: map[string]quota.NanoUSD{"input": rate.Draw(t, "above"), "search": 7}}}
			services := []quota.PriceService{
				{Name: "batch", Rates: map[string]quota.NanoUSD{"output": rate.Draw(t, "batch"), "image": 0}, Tiers: tiers},
				{Name: "flex", Rates: map[string]quota.NanoUSD{}, Tiers: tiers},
			}
			price := quota.ModelPrice{Provider: "Open AI", Model: "a/b", From: from, Rates: rates}
			if rapid.Bool().Draw(t, "steps") {
				price.Tiers, price.Services = tiers, services
			}
			doc.Prices = append(doc.Prices, price)
		}
		pool := limit.Draw(t, "pool")
		if pool.Kind != quota.KindQuota {
			pool.Name = "pool"
			doc.Pools = []quota.Pool{{Name: "pool", Limit: pool}}
		}
		want, err := doc.Policy(1)
		if err != nil {
			t.Fatal(err)
		}
		stored := newDocuments()
		for kind, name := range map[Kind]string{KindPlan: "p", KindAccount: "a", KindPool: "pool", KindPrice: "Open AI/a/b"} {
			if kind == KindPool && doc.Pools == nil {
				continue
			}
			first, err := encodeNormal(want, kind, name)
			if err != nil {
				t.Fatal(err)
			}
			stored[kind][name] = first
		}
		got, err := stored.policy(&policyfile.Document{}, nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, samePolicy, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
		for kind, byName := range stored {
			for name, first := range byName {
				if second, err := encodeNormal(got, kind, name); err != nil || second != first {
					t.Fatalf("%s became %s, %v", first, second, err)
				}
				if !bytes.Equal([]byte(first), bytes.ToValidUTF8([]byte(first), nil)) || len(fieldsOf(kind, name, first)) == 0 && len(plan.Limits) > 0 {
					t.Fatalf("%s has no fields to show", first)
				}
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	policy, err := mustParse("%s", firstFile).Policy(1)
	if err != nil {
		f.Fatal(err)
	}
	for kind, name := range map[Kind]string{KindPlan: "pro", KindPool: "openai-org", KindAccount: "acme", KindPrice: "openai/gpt-4o-mini"} {
		document, err := encodeNormal(policy, kind, name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(document)
	}
	f.Add(`{"limits":[{"rate":{"every_us":-1}}]}`)
	f.Add(`{"limits":[{"name":"a","meter":"tokens","kind":"bucket","rate":{"amount":1,"every_us":1000000},"max_wait_us":1500}]}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, document string) {
		for _, kind := range kinds {
			stored := newDocuments()
			name := "x"
			if kind == KindPrice {
				name = "x/y"
			}
			stored[kind][name] = document
			fieldsOf(kind, name, document)
			policy, err := stored.policy(&policyfile.Document{}, nil, 1)
			if err != nil {
				continue
			}
			// What is accepted is in bounds and has one text.
			first, err := encodeNormal(policy, kind, name)
			if err != nil {
				t.Fatal(err)
			}
			stored[kind][name] = first
			if again, err := stored.policy(&policyfile.Document{}, nil, 1); err != nil || !cmp.Equal(policy, again, samePolicy, cmpopts.EquateEmpty()) {
				t.Fatalf("%s became %s, %v", document, first, err)
			}
		}
	})
}
