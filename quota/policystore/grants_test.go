package policystore

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/budgetd/budgetd/quota"
)

const grantFile = `
plans:
  pro:
    quotas:
      - {name: spend, meter: cost, amount: $500, period: month}
      - {name: pages, meter: pages, amount: 100, period: day, per: [team]}
accounts:
  acme:
    plan: pro
    grants:
      - {name: welcome, limit: spend, amount: $50}
      - {name: extra, limit: pages, scope: team=red, amount: 10, until: 2027-01-01}
  beta: {plan: pro}
`

func grantOf(t *testing.T, store *Store, account, name string) quota.Grant {
	t.Helper()
	grant := findGrant(load(t, store).Accounts[account].Grants, name)
	if grant == nil {
		t.Fatalf("%s has no grant %s", account, name)
	}
	return *grant
}

// A grant that states no beginning begins when it comes in, and stays at that
// however often the same is applied.
func TestGrantsBegin(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		store := Open(open(), now.Now)
		apply(t, store, grantFile)
		first := time.Date(2026, 11, 15, 9, 30, 0, 0, time.UTC)
		for _, name := range []string{"welcome", "extra"} {
			if from := grantOf(t, store, "acme", name).From; !from.Equal(first) {
				t.Errorf("%s begins at %s, want %s", name, from, first)
			}
		}
		now.Advance(time.Hour)
		if change := apply(t, store, grantFile); change.Changes() {
			t.Errorf("the same again: %s", change)
		}
		// Another amount is the same grant; another counter is another one.
		change := apply(t, store, strings.NewReplacer("$50}", "$60}", "team=red", "team=blue").Replace(grantFile))
		want := `~ account acme
    grants.extra.scope: team=red -> team=blue
    grants.extra.from: 2026-11-15T09:30:00Z -> 2026-11-15T10:30:00Z
    grants.welcome.amount: $50.00 -> $60.00
0 added, 1 changed, 0 removed, 2 unchanged
`
		if diff := cmp.Diff(want, change.String()); diff != "" {
			t.Error(diff)
		}
		// The other ways to set an account.
		account := load(t, store).Accounts["acme"]
		account.Grants[1].From = time.Time{}
		if change, err := store.SetAccount(t.Context(), account, "test"); err != nil || change.Changes() {
			t.Errorf("SetAccount: %s, %v", change, err)
		}
		_, err := store.ChangeAccount(t.Context(), "beta", func(a *quota.Account) {
			a.Grants = []quota.Grant{{Name: "late", Limit: "spend", Amount: 5, Money: true, Until: first}}
		}, "test")
		if fields := quota.FieldErrors(err); len(fields) == 0 || !strings.Contains(err.Error(), "grants.late.until: 2026-11-15T09:30:00Z is not after from, 2026-11-15T10:30:00Z") {
			t.Errorf("a grant that has ended before it begins: %v", err)
		}
	})
}

func TestAddAndRemoveGrant(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		store := Open(open(), now.Now)
		apply(t, store, grantFile)
		topUp := quota.Grant{Name: "top-up", Limit: "spend", Amount: 20 * 1e9, Money: true, Priority: 7, Reason: "paid"}
		change, err := store.AddGrant(t.Context(), "beta", topUp, "billing")
		if err != nil || !strings.Contains(change.String(), "~ account beta\n    grants.top-up.limit: spend\n    grants.top-up.amount: $20.00\n    grants.top-up.from: 2026-11-15T09:30:00Z\n") || change.By != "billing" {
			t.Fatalf("%s, %v", change, err)
		}
		if history, err := store.History(t.Context(), 0, 1); err != nil || cmp.Diff([]Change{change}, history) != "" {
			t.Errorf("history = %+v, %v", history, err)
		}
		for _, c := range []struct {
			what, account string
			grant         quota.Grant
			is            error
			want          string
		}{
			{"again", "beta", topUp, ErrGrantExists, `grant "top-up" of account "beta"`},
			{"nobody's", "nobody", topUp, ErrNotFound, `account "nobody"`},
			{"of no quota", "beta", quota.Grant{Name: "x", Limit: "none", Amount: 1}, nil, `accounts.beta.grants.x.limit: the account has no quota "none"`},
			{"without an amount", "beta", quota.Grant{Name: "x", Limit: "spend", Money: true}, nil, "grants.x.amount: "},
			{"in another unit", "beta", quota.Grant{Name: "x", Limit: "spend", Amount: 1}, nil, "grants.x.amount: the quota \"spend\" counts cost"},
		} {
			_, err := store.AddGrant(t.Context(), c.account, c.grant, "billing")
			if err == nil || errors.Is(err, ErrUnavailable) || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.what, err, c.want)
			}
		}
		if change, err := store.RemoveGrant(t.Context(), "beta", "top-up", "billing"); err != nil || len(load(t, store).Accounts["beta"].Grants) != 0 || change.Count(Changed) != 1 {
			t.Errorf("%s, %v", change, err)
		}
		for _, account := range []string{"beta", "nobody"} {
			if _, err := store.RemoveGrant(t.Context(), account, "top-up", "billing"); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnavailable) {
				t.Errorf("removed again from %s: %v", account, err)
			}
		}
	})
}

// keptUses lists what is kept as "account grant period covered".
func keptUses(t *testing.T, db *sql.DB) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT account, grant_name, period, covered FROM grant_uses ORDER BY account, grant_name, period`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var account, grant, period string
		var covered int64
		if err := rows.Scan(&account, &grant, &period, &covered); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %s %s %d", account, grant, period, covered))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// use is a settled one of acme, as grantFile has its quotas.
func use(grant, period string, covered quota.Amount) quota.GrantUse {
	if period == "" {
		return quota.GrantUse{Account: "acme", Grant: grant, Covered: covered}
	}
	limit := quota.Limit{Name: "spend", Kind: quota.KindQuota, Meter: quota.MeterCost, Period: quota.PeriodMonth, Max: 500e9}
	if grant == "extra" {
		limit = quota.Limit{Name: "pages", Kind: quota.KindQuota, Meter: "pages", Period: quota.PeriodDay, Max: 100, Per: []string{"team"}}
	}
	of, err := quota.PeriodFromKey(period, "", 1)
	if err != nil {
		panic(err)
	}
	return quota.GrantUse{
		Account: "acme", Grant: grant, Limit: limit.ID(), Meter: limit.Meter, Period: period,
		Start: of.Start, End: of.End, Own: limit.Max, Covered: covered, State: quota.UseSettled,
	}
}

func TestSaveGrantUses(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		now := newClock()
		store := Open(db, now.Now)
		apply(t, store, grantFile)
		seen := load(t, store)
		save := func(want bool, uses ...quota.GrantUse) {
			t.Helper()
			before, err := store.Version(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if saved, err := store.SaveGrantUses(t.Context(), uses, seen); err != nil || saved != want {
				t.Errorf("saved = %v, %v, want %v", saved, err, want)
			}
			after, err := store.Version(t.Context())
			if want {
				before++
			}
			if err != nil || after != before {
				t.Errorf("version = %d, %v, want %d", after, err, before)
			}
			seen = load(t, store)
		}
		kept := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, keptUses(t, db)); diff != "" {
				t.Error(diff)
			}
		}
		// A grant is open from the moment that it is there.
		kept("acme extra d2026-11-15 0", "acme welcome m2026-11-01 0")
		if uses := seen.GrantUses("acme", "welcome"); len(uses) != 1 || uses[0].State != quota.UseOpen || uses[0].Own != 500e9 {
			t.Errorf("%+v", uses)
		}
		save(false)
		first := seen
		january := use("welcome", "m2027-01-01", 0)
		january.State = quota.UseOpen
		save(true, use("welcome", "m2026-11-01", 7), use("welcome", "m2026-12-01", 9), january, use("extra", "d2026-11-15", 0))
		kept("acme extra d2026-11-15 0", "acme welcome m2026-11-01 7", "acme welcome m2026-12-01 9", "acme welcome m2027-01-01 0")
		// A node that did not know of that does not write over it.
		if saved, err := store.SaveGrantUses(t.Context(), []quota.GrantUse{use("welcome", "m2026-11-01", 1)}, first); saved || err != nil {
			t.Errorf("written over: %v, %v", saved, err)
		}
		// The policy has them, and goes on from them.
		last := seen.Accounts["acme"].PeriodAt(quota.PeriodMonth, time.Date(2027, 1, 5, 0, 0, 0, 0, time.UTC))
		limits, err := seen.Limits("acme")
		if err != nil {
			t.Fatal(err)
		}
		policy := load(t, store)
		if got := policy.Allowance(policy.Accounts["acme"], limits[0], last, last.Start); got.Granted != 50e9-16 {
			t.Errorf("granted in January: %d, want %d", got.Granted, quota.Amount(50e9-16))
		}
		// The same, by another node, in another order.
		save(false, use("extra", "d2026-11-15", 0), january, use("welcome", "m2026-12-01", 9), use("welcome", "m2026-11-01", 7))
		// All that is kept of a grant is replaced, others stay.
		save(true, use("welcome", "", 7), use("welcome", "m2026-12-01", 10))
		kept("acme extra d2026-11-15 0", "acme welcome  7", "acme welcome m2026-12-01 10")
		// What has no grant, or no account, is left out.
		nobodys := use("welcome", "m2026-11-01", 1)
		nobodys.Account = "nobody"
		save(false, use("nothing", "m2026-11-01", 1), nobodys)
		for want, uses := range map[string][]quota.GrantUse{
			"-1 is not between": {use("welcome", "m2026-11-01", -1)},
			"is stated twice":   {use("welcome", "m2026-11-01", 1), use("extra", "d2026-11-15", 1), use("welcome", "m2026-11-01", 1)},
		} {
			if saved, err := store.SaveGrantUses(t.Context(), uses, seen); saved || err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, ErrUnavailable) {
				t.Errorf("%v, %v, want %q", saved, err, want)
			}
		}
		// A late answer about a grant that is another by now, or whose quota is.
		now.Advance(time.Hour)
		apply(t, store, strings.NewReplacer("$50}", "$60}").Replace(grantFile))
		save(false, use("welcome", "m2026-12-01", 11))
		apply(t, store, strings.NewReplacer("$50}", "$60}", "amount: $500", "amount: $400").Replace(grantFile))
		save(false, use("welcome", "m2026-12-01", 11))
		save(true, use("welcome", "m2026-12-01", 11))
		if _, err := store.SetAccount(t.Context(), quota.Account{Name: "acme", Plan: "pro", TimeZone: "Asia/Tokyo", Grants: seen.Accounts["acme"].Grants}, "test"); err != nil {
			t.Fatal(err)
		}
		save(false, use("welcome", "m2026-12-01", 12))
		kept("acme extra d2026-11-15 0", "acme welcome m2026-12-01 11")
		// An operator's changes have their history, with gaps.
		history, err := store.History(t.Context(), 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		var versions []int64
		for _, change := range history {
			versions = append(versions, change.Version)
		}
		if diff := cmp.Diff([]int64{7, 5, 4, 1}, versions); diff != "" {
			t.Errorf("versions in the history: %s", diff)
		}
	})
}

// What was covered goes with its grant, however that goes, and stays otherwise.
func TestGrantUsesGo(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		now := newClock()
		store := Open(db, now.Now)
		welcome, extra := "acme welcome m2026-11-01 7", "acme extra d2026-11-15 3"
		newWelcome, newExtra := "acme welcome m2026-11-01 0", "acme extra d2026-11-15 0"
		for _, c := range []struct {
			what string
			do   func() error
			want []string // after it
			back []string // and when all is as before; nil: the same
		}{
			{"another amount and end", func() error {
				apply(t, store, strings.NewReplacer("$50}", "$60, until: 2027-05-05}", "amount: 10, until", "amount: 11, priority: 3, until").Replace(grantFile))
				return nil
			}, []string{extra, welcome}, nil},
			{"another scope", func() error { apply(t, store, strings.Replace(grantFile, "team=red", "team=blue", 1)); return nil }, []string{newExtra, welcome}, nil},
			{"another beginning", func() error {
				apply(t, store, strings.Replace(grantFile, "$50}", "$50, from: 2026-11-16}", 1))
				return nil
			}, []string{extra, newWelcome}, nil},
			{"RemoveGrant", func() error { _, err := store.RemoveGrant(t.Context(), "acme", "welcome", "x"); return err }, []string{extra}, []string{extra, newWelcome}},
			{"the account", func() error { _, err := store.Remove(t.Context(), KindAccount, "acme", "x"); return err }, nil, []string{newExtra, newWelcome}},
			{"prune", func() error {
				_, err := store.Apply(t.Context(), parse(t, "accounts: {beta: {plan: pro}}"), Options{By: "x", Prune: true})
				return err
			}, nil, []string{newExtra, newWelcome}},
			{"what can't be read", func() error {
				_, err := db.ExecContext(t.Context(), `UPDATE accounts SET document = '{' WHERE name = 'acme'`)
				apply(t, store, grantFile)
				return err
			}, []string{extra, welcome}, nil},
		} {
			apply(t, store, grantFile)
			seen := load(t, store)
			if _, err := store.SaveGrantUses(t.Context(), []quota.GrantUse{use("welcome", "m2026-11-01", 7), use("extra", "d2026-11-15", 3)}, seen); err != nil {
				t.Fatal(err)
			}
			if err := c.do(); err != nil {
				t.Fatal(c.what, err)
			}
			if got := keptUses(t, db); !slices.Equal(got, c.want) {
				t.Errorf("%s: %v are kept, want %v", c.what, got, c.want)
			}
			load(t, store)
			// The same name again is another grant, of which nothing was covered.
			now.Advance(time.Hour)
			apply(t, store, grantFile)
			back := c.back
			if back == nil {
				back = c.want
			}
			if got := keptUses(t, db); !slices.Equal(got, back) {
				t.Errorf("%s, and back: %v are kept, want %v", c.what, got, back)
			}
		}
	})
}

// Nodes that save the same at once write it once.
func TestNodesSaveTheSame(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		store := Open(db, nil)
		apply(t, store, grantFile)
		seen := load(t, store)
		var done sync.WaitGroup
		var mu sync.Mutex
		writers := 0
		for range 6 {
			node := Open(open(), nil)
			done.Go(func() {
				saved, err := node.SaveGrantUses(t.Context(), []quota.GrantUse{use("welcome", "m2026-11-01", 7), use("welcome", "m2026-12-01", 1)}, seen)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if saved {
					writers++
				}
			})
		}
		done.Wait()
		if version, err := store.Version(t.Context()); err != nil || version != 2 || writers != 1 {
			t.Errorf("%d nodes wrote, version %d, %v", writers, version, err)
		}
	})
}
