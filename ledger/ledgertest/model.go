package ledgertest

import (
	"bytes"
	gocmp "cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// model is the contract, written as plainly as possible.
type model struct {
	closings map[modelKey]*modelClosing
	usage    map[ledger.UsageKey]*ledger.Usage
	adjusted map[[16]byte]ledger.Adjustment
}

type modelKey struct {
	account     string
	reservation [16]byte
}

type modelClosing struct {
	winner  ledger.Closing
	charged map[ledger.UsageKey]quota.Amount
}

func (m *model) append(closings []ledger.Closing) []ledger.Verdict {
	before := map[ledger.UsageKey]quota.Amount{}
	touch := func(key ledger.UsageKey) *ledger.Usage {
		if m.usage[key] == nil {
			m.usage[key] = &ledger.Usage{UsageKey: key}
		}
		if _, known := before[key]; !known {
			before[key] = m.usage[key].Used
		}
		return m.usage[key]
	}
	verdicts := make([]ledger.Verdict, len(closings))
	for i, c := range closings {
		key := modelKey{c.Account, c.Reservation}
		held := m.closings[key]
		if held == nil {
			held = &modelClosing{charged: map[ledger.UsageKey]quota.Amount{}}
			m.closings[key] = held
		}
		posted := c.Rank > held.winner.Rank
		if posted {
			for row, amount := range held.charged {
				touch(row).Used -= amount
				held.charged[row] = 0
			}
			for _, line := range c.Lines {
				row := line.Key(c.Account)
				touch(row).Used += line.Amount
				held.charged[row] = line.Amount
			}
			held.winner = c
		}
		verdicts[i] = ledger.VerdictOf(&held.winner)
		verdicts[i].Posted = posted
	}
	for row, used := range before {
		if m.usage[row].Used != used {
			m.usage[row].Version++
		}
	}
	for i, c := range closings {
		for row := range m.closings[modelKey{c.Account, c.Reservation}].charged {
			verdicts[i].Usage = append(verdicts[i].Usage, *m.usage[row])
		}
		slices.SortFunc(verdicts[i].Usage, func(a, b ledger.Usage) int { return a.Compare(b.UsageKey) })
	}
	return verdicts
}

func (m *model) adjust(a ledger.Adjustment) (ledger.Usage, bool) {
	before, known := m.adjusted[a.ID]
	if !known {
		if m.usage[a.Key] == nil {
			m.usage[a.Key] = &ledger.Usage{UsageKey: a.Key}
		}
		m.usage[a.Key].Used += a.Amount
		m.usage[a.Key].Version++
		m.adjusted[a.ID] = a
		before = a
	}
	return *m.usage[before.Key], !known
}

func (m *model) reprice(repricings []ledger.Repricing) (done ledger.Repriced) {
	before := map[ledger.UsageKey]quota.Amount{}
	for _, r := range repricings {
		held := m.closings[modelKey{r.Account, r.Reservation}]
		if held == nil || held.winner.Rank != r.Rank || held.winner.Body != r.Body {
			continue
		}
		changed := false
		for _, line := range r.Lines {
			row := line.Key(r.Account)
			difference := line.Amount - held.charged[row]
			if difference == 0 {
				continue
			}
			if _, known := before[row]; !known {
				before[row] = m.usage[row].Used
			}
			changed = true
			m.usage[row].Used += difference
			if row.Limit == "" {
				done.Difference += quota.NanoUSD(difference)
			}
			held.charged[row] = line.Amount
		}
		if changed {
			done.Closings++
		}
	}
	for row, used := range before {
		if m.usage[row].Used != used {
			m.usage[row].Version++
			done.Usage = append(done.Usage, *m.usage[row])
		}
	}
	slices.SortFunc(done.Usage, func(a, b ledger.Usage) int { return a.Compare(b.UsageKey) })
	return done
}

// repricings draws repricings of closings that the model has, some of them of
// another closing than the one that stands.
func (m *model) repricings(t *rapid.T) []ledger.Repricing {
	var keys []modelKey
	for key := range m.closings {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b modelKey) int {
		return gocmp.Or(strings.Compare(a.account, b.account), bytes.Compare(a.reservation[:], b.reservation[:]))
	})
	var repricings []ledger.Repricing
	for _, key := range keys {
		if !rapid.Bool().Draw(t, "reprice it") {
			continue
		}
		c := m.closing(key)
		r := ledger.Repricing{Account: c.Account, Reservation: c.Reservation, Minted: c.Minted, Rank: c.Rank, Body: c.Body}
		if rapid.IntRange(0, 4).Draw(t, "look at another") == 0 {
			r.Body[1]++
		}
		for _, line := range c.Lines {
			if line.Meter == quota.MeterCost && rapid.Bool().Draw(t, "reprice the line") {
				line.Amount = quota.Amount(rapid.Int64Range(0, 1000).Draw(t, "amount"))
				r.Lines = append(r.Lines, line)
			}
		}
		repricings = append(repricings, r)
	}
	return rapid.Permutation(repricings).Draw(t, "order")
}

// adjustmentsOf draws adjustments of rows that closings charge, too.
func adjustmentsOf(run int64) *rapid.Generator[ledger.Adjustment] {
	return rapid.Custom(func(t *rapid.T) ledger.Adjustment {
		key := scopeKey(rapid.IntRange(0, 4).Draw(t, "scope"))
		key.Account = accountName(run, rapid.IntRange(0, accounts-1).Draw(t, "account"))
		a := adjustment(rapid.IntRange(0, 5).Draw(t, "adjustment"), key, 1)
		binary.BigEndian.PutUint64(a.ID[1:], uint64(run))
		a.Amount = quota.Amount(rapid.Int64Range(1, 1000).Draw(t, "amount"))
		if rapid.Bool().Draw(t, "credit") {
			a.Amount = -a.Amount
		}
		a.At = noon.AddDate(0, rapid.IntRange(0, 2).Draw(t, "month"), 0)
		return a
	})
}

func (m *model) closing(key modelKey) ledger.Closing {
	held := m.closings[key]
	c := held.winner
	c.Lines = nil
	for row, amount := range held.charged {
		c.Lines = append(c.Lines, line(row, amount))
	}
	slices.SortFunc(c.Lines, func(a, b ledger.Line) int { return a.Key("").Compare(b.Key("")) })
	return c
}

func agreesWithModel(t *testing.T, b *bench) {
	engines := []ledger.Ledger{b.engine(), b.open()}
	feed := &changes{bench: b}
	feed.read(1)
	var runs atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		run := runs.Add(1)
		m := &model{
			closings: map[modelKey]*modelClosing{}, usage: map[ledger.UsageKey]*ledger.Usage{}, adjusted: map[[16]byte]ledger.Adjustment{},
		}
		closings, adjustments := closingsOf(run), adjustmentsOf(run)
		for range rapid.IntRange(1, 8).Draw(t, "calls") {
			l := rapid.SampledFrom(engines).Draw(t, "engine")
			switch rapid.IntRange(0, 5).Draw(t, "call") {
			case 0:
				a := adjustments.Draw(t, "adjustment")
				got, posted, err := l.Adjust(b.ctx, a)
				if want, wantPosted := m.adjust(a); err != nil || got != want || posted != wantPosted {
					t.Fatalf("adjust: %+v, %t, %v; want %+v, %t", got, posted, err, want, wantPosted)
				}
			case 1:
				repricings := m.repricings(t)
				got, err := l.Reprice(b.ctx, correction(int(run%1000)), repricings)
				if diff := cmp.Diff(m.reprice(repricings), got, cmpopts.EquateEmpty()); err != nil || diff != "" {
					t.Fatalf("reprice: %v (-model +engine):\n%s", err, diff)
				}
			default:
				batch := rapid.SliceOfN(closings, 1, 12).Draw(t, "closings")
				got, err := l.Append(b.ctx, batch)
				if err != nil {
					t.Fatalf("append: %v", err)
				}
				if diff := cmp.Diff(m.append(batch), got, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("verdicts (-model +engine):\n%s", diff)
				}
			}
		}
		for key := range m.closings {
			want := m.closing(key)
			got, err := b.engine().Closing(b.ctx, key.account, key.reservation, want.Minted)
			if err != nil {
				t.Fatalf("closing: %v", err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("closing (-model +engine):\n%s", diff)
			}
		}
		var keys []ledger.UsageKey
		var want []ledger.Usage
		for key, row := range m.usage {
			keys, want = append(keys, key), append(want, *row)
		}
		got, err := b.engine().Usage(b.ctx, keys)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("usage: %+v, %v, want %+v", got, err, want)
		}
		var changed []ledger.Usage
		for _, u := range want {
			if u.Version > 0 {
				changed = append(changed, u)
			}
		}
		slices.SortFunc(changed, func(a, b ledger.Usage) int { return a.Compare(b.UsageKey) })
		got = slices.DeleteFunc(feed.read(rapid.IntRange(1, 20).Draw(t, "changes a page")), func(u ledger.Usage) bool {
			return m.usage[u.UsageKey] == nil // of a run that failed before
		})
		if diff := cmp.Diff(changed, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("changes (-model +engine):\n%s", diff)
		}
		for account := range accounts {
			if found, err := b.engine().CheckSums(b.ctx, accountName(run, account)); err != nil || len(found) > 0 {
				t.Fatalf("check sums: %v, %v", found, err)
			}
		}
	})
}

// accounts is how many accounts a run has.
const accounts = 2

// scopeKey is one of the rows of a run: some are of the meter that has a price.
func scopeKey(scope int) ledger.UsageKey {
	key := ledger.UsageKey{Limit: "limit", Scope: fmt.Sprint(scope), Period: "m2026-11-01", Meter: quota.MeterCost}
	if scope%3 == 2 {
		key.Meter = quota.MeterTokens
	}
	return key
}

func accountName(run int64, account int) string { return fmt.Sprintf("account-%d-%d", run, account) }

// closingsOf draws closings from a small world, so that they often meet. Each
// run has accounts of its own.
func closingsOf(run int64) *rapid.Generator[ledger.Closing] {
	return rapid.Custom(func(t *rapid.T) ledger.Closing {
		number := rapid.IntRange(0, 5).Draw(t, "reservation")
		c := refund(number)
		c.Account = accountName(run, rapid.IntRange(0, accounts-1).Draw(t, "account"))
		c.Minted = noon.AddDate(0, number%3, 0) // a reservation has one mint instant
		c.ClosedAt = c.Minted.Add(time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "open for")) * time.Microsecond)
		c.Rank = rapid.SampledFrom([]ledger.Rank{ledger.RankExpired, ledger.RankRefunded}).Draw(t, "rank")
		c.Body = [16]byte{byte(rapid.IntRange(0, 2).Draw(t, "body"))}
		c.Outcome = rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "outcome")
		c.Late, c.Degraded = rapid.Bool().Draw(t, "late"), rapid.Bool().Draw(t, "degraded")
		scopes := rapid.SliceOfNDistinct(rapid.IntRange(0, 4), 0, 4, rapid.ID[int]).Draw(t, "scopes")
		for _, scope := range scopes {
			key := scopeKey(scope)
			amount := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, int64(quota.MaxAmount)/1000)).Draw(t, "amount")
			c.Lines = append(c.Lines, line(key, quota.Amount(amount)))
		}
		return c
	})
}
