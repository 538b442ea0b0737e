package ledgertest

import (
	"fmt"
	"slices"
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
	var runs atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		run := runs.Add(1)
		m := &model{closings: map[modelKey]*modelClosing{}, usage: map[ledger.UsageKey]*ledger.Usage{}}
		closings := closingsOf(run)
		for range rapid.IntRange(1, 8).Draw(t, "calls") {
			batch := rapid.SliceOfN(closings, 1, 12).Draw(t, "closings")
			l := rapid.SampledFrom(engines).Draw(t, "engine")
			got, err := l.Append(b.ctx, batch)
			if err != nil {
				t.Fatalf("append: %v", err)
			}
			if diff := cmp.Diff(m.append(batch), got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("verdicts (-model +engine):\n%s", diff)
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
		for account := range accounts {
			if found, err := b.engine().CheckSums(b.ctx, accountName(run, account)); err != nil || len(found) > 0 {
				t.Fatalf("check sums: %v, %v", found, err)
			}
		}
	})
}

// accounts is how many accounts a run has.
const accounts = 2

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
			key := ledger.UsageKey{Limit: "limit", Scope: fmt.Sprint(scope), Period: "m2026-11-01", Meter: quota.MeterTokens}
			amount := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, int64(quota.MaxAmount)/1000)).Draw(t, "amount")
			c.Lines = append(c.Lines, line(key, quota.Amount(amount)))
		}
		return c
	})
}
