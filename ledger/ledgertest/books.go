package ledgertest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

func versions(t *testing.T, b *bench) {
	for i := range 5 {
		b.append(refund(2*i, line(spend, 10)), refund(2*i+1, line(spend, 5)))
		b.wantUsage(spend, quota.Amount(15*(i+1)), int64(i+1))
	}
	b.append(refund(0, line(spend, 10)))
	b.wantUsage(spend, 75, 5)
	// Differences that cancel out leave the row as it was.
	b.append(expiry(20, line(spend, 30)))
	b.append(refund(20, line(spend, 0)), refund(21, line(spend, 30)))
	b.wantUsage(spend, 105, 6)
	b.wantBalanced(spend.Account)
}

func zeroLines(t *testing.T, b *bench) {
	unused := refund(1, line(spend, 0))
	b.same("verdict", b.append(unused)[0], verdict(unused, true, row(spend, 0, 0)))
	b.same("again", b.append(unused)[0], verdict(unused, false, row(spend, 0, 0)))
	b.same("closing", b.closing(unused), unused)
	b.append(refund(2, line(spend, 8)))
	b.wantUsage(spend, 8, 1)
	other := refund(3, line(spend, 0))
	b.same("verdict", b.append(other)[0], verdict(other, true, row(spend, 8, 1)))

	bare := refund(4)
	b.same("no lines", b.append(bare)[0], verdict(bare, true))
	b.same("no lines, again", b.append(bare)[0], verdict(bare, false))
	b.same("closing", b.closing(bare), bare)
	// What had no lines can get some.
	b.append(expiry(5))
	b.append(refund(5, line(spend, 2)))
	b.wantUsage(spend, 10, 2)
	b.wantBalanced(spend.Account)
}

func usageAnswers(t *testing.T, b *bench) {
	b.append(refund(1, line(spend, 8)))
	unknown := spend
	unknown.Scope = "model=unknown"
	got, err := b.engine().Usage(b.ctx, []ledger.UsageKey{unknown, spend, unknown, spend})
	if err != nil {
		t.Fatal(err)
	}
	b.same("usage", got, []ledger.Usage{row(unknown, 0, 0), row(spend, 8, 1), row(unknown, 0, 0), row(spend, 8, 1)})
	if got, err := b.engine().Usage(b.ctx, nil); err != nil || len(got) != 0 {
		t.Errorf("usage of nothing: %v, %v", got, err)
	}
	// Fields that run into each other are different rows.
	left, right := spend, spend
	left.Limit, left.Scope = "ab", "c"
	right.Limit, right.Scope = "a", "bc"
	b.append(refund(2, line(left, 1), line(right, 2)))
	b.wantUsage(left, 1, 1)
	b.wantUsage(right, 2, 1)
}

func accountUsage(t *testing.T, b *bench) {
	var want []ledger.Usage
	var lines []ledger.Line
	for i, limit := range []string{"", "Zeta", "alpha", "alpha-1", "alpha.1", "ähnlich"} {
		for _, scope := range []string{"", "team=a"} {
			for _, period := range []string{"d2026-11-15", "m2026-11-01"} {
				key := ledger.UsageKey{Account: spend.Account, Limit: limit, Scope: scope, Period: period, Meter: quota.MeterCost}
				lines = append(lines, line(key, quota.Amount(i+1)))
				want = append(want, row(key, quota.Amount(i+1), 1))
			}
		}
	}
	elsewhere := refund(2, line(spend, 9))
	elsewhere.Account = "other"
	b.append(refund(1, lines...), elsewhere)

	slices.SortFunc(want, func(a, b ledger.Usage) int { return a.Compare(b.UsageKey) })
	ask := func(period string, limit int) []ledger.Usage {
		t.Helper()
		got, err := b.engine().AccountUsage(b.ctx, spend.Account, period, limit)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	b.same("all periods", ask("", 100), want)
	b.same("bounded", ask("", 5), want[:5])
	month := slices.DeleteFunc(slices.Clone(want), func(u ledger.Usage) bool { return u.Period != "m2026-11-01" })
	b.same("one period", ask("m2026-11-01", ledger.MaxAccountUsage), month)
	b.same("an empty period", ask("m2026-10-01", 10), []ledger.Usage{})
}

func overflow(t *testing.T, b *bench) {
	other := spend
	other.Scope = "other"
	b.append(refund(1, line(spend, 1), line(other, 1)))
	b.database.Damage(t, spend, math.MaxInt64-10)
	fits, tooMuch, neighbour := refund(2, line(spend, 10)), refund(3, line(spend, 1)), refund(4, line(other, 5))
	b.append(fits)
	b.wantUsage(spend, math.MaxInt64, 2)

	_, err := b.engine().Append(b.ctx, []ledger.Closing{neighbour, tooMuch})
	if err == nil || errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("overflow: error %v, want one that is no ErrUnavailable", err)
	}
	for _, c := range []ledger.Closing{tooMuch, neighbour} {
		if _, err := b.engine().Closing(b.ctx, c.Account, c.Reservation, c.Minted); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("after the overflow a closing is there: %v", err)
		}
	}
	b.wantUsage(spend, math.MaxInt64, 2)
	b.wantUsage(other, 1, 1)
	b.append(neighbour)
	b.wantUsage(other, 6, 2)

	// Many large amounts overflow while they are added up.
	var many []ledger.Closing
	for i := range 1025 {
		many = append(many, refund(10+i, line(other, quota.MaxAmount)))
	}
	if _, err := b.engine().Append(b.ctx, many); !errors.Is(err, quota.ErrOverflow) || errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("sum of 1025 times 2^53-1: error %v, want ErrOverflow and no ErrUnavailable", err)
	}
	b.wantUsage(other, 6, 2)
}

func damagedBooks(t *testing.T, b *bench) {
	other := spend
	other.Limit = "another.0123abcd"
	untouched := spend
	untouched.Account = "other"
	c := refund(9, line(untouched, 4))
	c.Account = "other"
	b.append(refund(1, line(spend, 8), line(other, 3)), c)
	b.wantBalanced(spend.Account, "other", "unknown")

	b.database.Damage(t, spend, 9)
	check := func() []ledger.Mismatch {
		t.Helper()
		found, err := b.engine().CheckSums(b.ctx, spend.Account)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	b.same("a wrong row", check(), []ledger.Mismatch{{Usage: row(spend, 9, 1), Entries: 8}})
	b.database.Lose(t, other)
	lost := ledger.UsageKey{Account: spend.Account, Limit: ledger.LostRow(other.ID())}
	b.same("a lost row", check(), []ledger.Mismatch{
		{Usage: row(spend, 9, 1), Entries: 8}, {Usage: row(lost, 0, 0), Entries: 3},
	})
	b.wantBalanced("other")
	b.database.Damage(t, spend, 8)
	b.same("repaired", check(), []ledger.Mismatch{{Usage: row(lost, 0, 0), Entries: 3}})

	// What can't be told is said, not guessed.
	if _, err := b.engine().Closing(b.ctx, spend.Account, id(1), noon); err == nil {
		t.Error("a closing whose usage row is lost was read without an error")
	}
}

func largestClosing(t *testing.T, b *bench) {
	c := refund(1)
	c.Outcome = make([]byte, ledger.MaxOutcomeBytes)
	for i := range c.Outcome {
		c.Outcome[i] = byte(i)
	}
	c.Labels = map[string]string{}
	for i := range quota.MaxLabels {
		c.Labels[pad(i)] = pad(i)
	}
	c.PriceVersion = pad(0)
	c.Account = pad(0)
	for i := range ledger.MaxLines {
		key := ledger.UsageKey{Account: c.Account, Limit: pad(i), Scope: pad(1), Period: pad(2), Meter: quota.Meter(pad(3))}
		c.Lines = append(c.Lines, line(key, quota.MaxAmount-quota.Amount(i)))
	}
	got := b.append(c)[0]
	if !got.Posted || len(got.Usage) != ledger.MaxLines {
		t.Fatalf("posted %t with %d rows, want %d", got.Posted, len(got.Usage), ledger.MaxLines)
	}
	b.same("closing", b.closing(c), c)
	b.wantBalanced(c.Account)
}

// pad returns a text of the largest size that sorts by the number.
func pad(number int) string { return fmt.Sprintf("%0*d", ledger.MaxTextBytes, number) }

func largestCall(t *testing.T, b *bench) {
	closings := make([]ledger.Closing, ledger.MaxAppend)
	for i := range closings {
		closings[i] = refund(i, line(spend, 1))
	}
	for i, v := range b.append(closings...) {
		if !v.Posted || v.Usage[0] != row(spend, ledger.MaxAppend, 1) {
			t.Fatalf("closing %d: %+v", i, v)
		}
	}
	b.wantBalanced(spend.Account)
	_, err := b.engine().Append(b.ctx, append(closings, refund(len(closings))))
	if !errors.Is(err, ledger.ErrInvalid) {
		t.Errorf("one more than fits: error %v, want ErrInvalid", err)
	}
}
