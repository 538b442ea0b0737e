package ledgertest

import (
	"errors"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

func keptInFull(t *testing.T, b *bench) {
	total := ledger.UsageKey{Account: spend.Account, Period: "m2026-11-01", Meter: quota.MeterTokens}
	c := refund(1, line(total, 1200), line(spend, 2_340_000))
	c.Minted = noon.Add(123456 * time.Microsecond)
	c.Late, c.Degraded = true, true
	c.Outcome = []byte{0, 1, 2, 255}

	got := b.append(c)
	b.same("verdict", got[0], verdict(c, true, row(total, 1200, 1), row(spend, 2_340_000, 1)))
	b.same("closing", b.closing(c), c)
	b.wantUsage(spend, 2_340_000, 1)
	b.wantBalanced(spend.Account)

	// Times are kept to the microsecond, and read back in UTC.
	odd := refund(2)
	odd.Minted = noon.Add(1500 * time.Nanosecond).In(time.FixedZone("east", 9*3600))
	odd.ClosedAt = odd.Minted
	if got := b.append(odd)[0].ClosedAt; got != noon.Add(time.Microsecond) {
		t.Errorf("closed at %s, want %s", got, noon.Add(time.Microsecond))
	}
	if got := b.closing(odd).Minted; got != noon.Add(time.Microsecond) {
		t.Errorf("minted %s, want %s", got, noon.Add(time.Microsecond))
	}

	_, err := b.engine().Closing(b.ctx, spend.Account, id(3), noon)
	if !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("closing of an unknown reservation: error %v, want ErrNotFound", err)
	}
}

func sameTwice(t *testing.T, b *bench) {
	c := refund(1, line(spend, 700))
	b.append(c)
	for range 3 {
		b.same("verdict", b.append(c)[0], verdict(c, false, row(spend, 700, 1)))
	}
	// The verdict has the row's present value, not that of the first time.
	b.append(refund(2, line(spend, 50)))
	b.same("verdict", b.append(c)[0], verdict(c, false, row(spend, 750, 2)))
	b.wantBalanced(spend.Account)
}

func firstBodyStays(t *testing.T, b *bench) {
	first := refund(1, line(spend, 700))
	other := refund(1, line(spend, 9))
	other.Body, other.Outcome, other.Late = [16]byte{2}, []byte("another"), true
	other.ClosedAt = first.ClosedAt.Add(time.Hour)
	b.append(first)
	b.same("verdict", b.append(other)[0], verdict(first, false, row(spend, 700, 1)))
	b.same("closing", b.closing(first), first)
	b.wantUsage(spend, 700, 1)

	firstExpiry, otherExpiry := expiry(2, line(spend, 30)), expiry(2, line(spend, 40))
	b.append(firstExpiry)
	b.same("verdict", b.append(otherExpiry)[0], verdict(firstExpiry, false, row(spend, 730, 2)))
	b.wantBalanced(spend.Account)
}

func refundReplaces(t *testing.T, b *bench) {
	expired, late := expiry(1, line(spend, 1000)), refund(1, line(spend, 200))
	late.Late = true
	b.same("expiry", b.append(expired)[0], verdict(expired, true, row(spend, 1000, 1)))
	b.same("refund", b.append(late)[0], verdict(late, true, row(spend, 200, 2)))
	b.same("closing", b.closing(late), late)
	b.same("the refund again", b.append(late)[0], verdict(late, false, row(spend, 200, 2)))
	b.wantBalanced(spend.Account)

	// An overrun posts upwards.
	b.append(expiry(2, line(spend, 10)))
	b.append(refund(2, line(spend, 500)))
	b.wantUsage(spend, 700, 4)
	// The same amount changes the closing, and no row.
	b.append(expiry(3, line(spend, 10)))
	same := refund(3, line(spend, 10))
	b.same("equal refund", b.append(same)[0], verdict(same, true, row(spend, 710, 5)))
	b.wantBalanced(spend.Account)
}

func expiryStaysOut(t *testing.T, b *bench) {
	settled, late := refund(1, line(spend, 200)), expiry(1, line(spend, 1000))
	b.append(settled)
	b.same("verdict", b.append(late)[0], verdict(settled, false, row(spend, 200, 1)))
	b.same("closing", b.closing(settled), settled)
	b.wantUsage(spend, 200, 1)
	b.wantBalanced(spend.Account)
}

func droppedLine(t *testing.T, b *bench) {
	other := spend
	other.Limit = "another.0123abcd"
	b.append(expiry(1, line(spend, 1000), line(other, 7)))
	settled := refund(1, line(spend, 200))
	b.same("verdict", b.append(settled)[0], verdict(settled, true, row(other, 0, 2), row(spend, 200, 2)))
	settled.Lines = []ledger.Line{line(other, 0), line(spend, 200)}
	b.same("closing", b.closing(settled), settled)
	b.wantBalanced(spend.Account)

	added := refund(2, line(other, 4), line(spend, 5))
	b.append(expiry(2, line(spend, 1)))
	b.same("verdict", b.append(added)[0], verdict(added, true, row(other, 4, 3), row(spend, 205, 4)))
	b.wantBalanced(spend.Account)
}

func oneCallInOrder(t *testing.T, b *bench) {
	expired, again := expiry(1, line(spend, 1000)), expiry(1, line(spend, 5))
	settled, twin := refund(1, line(spend, 200)), refund(1, line(spend, 300))
	twin.Body = [16]byte{2}
	usage := row(spend, 200, 1) // one transaction, one version
	b.same("verdicts", b.append(expired, again, settled, twin, again), []ledger.Verdict{
		verdict(expired, true, usage), verdict(expired, false, usage),
		verdict(settled, true, usage), verdict(settled, false, usage), verdict(settled, false, usage),
	})
	b.same("closing", b.closing(settled), settled)
	b.wantBalanced(spend.Account)

	// The same where an expiry was stored before.
	stored := expiry(2, line(spend, 10))
	b.append(stored)
	repeated, refunded := expiry(2, line(spend, 77)), refund(2, line(spend, 30))
	usage = row(spend, 230, 3)
	b.same("verdicts", b.append(repeated, refunded, repeated), []ledger.Verdict{
		verdict(stored, false, usage), verdict(refunded, true, usage), verdict(refunded, false, usage),
	})
	// And where a refund was.
	b.same("verdicts", b.append(repeated, twinOf(refunded)), []ledger.Verdict{
		verdict(refunded, false, usage), verdict(refunded, false, usage),
	})
	b.wantBalanced(spend.Account)

	if verdicts, err := b.engine().Append(b.ctx, nil); err != nil || len(verdicts) != 0 {
		t.Errorf("append of nothing: %v, %v", verdicts, err)
	}
}

// twinOf returns another body for the same reservation.
func twinOf(c ledger.Closing) ledger.Closing {
	c.Body[15]++
	return c
}

func ownReservations(t *testing.T, b *bench) {
	mine := refund(1, line(spend, 200))
	yours := refund(1, line(spend, 300))
	yours.Account = "other"
	theirs := spend
	theirs.Account = "other"
	b.same("verdicts", b.append(mine, yours), []ledger.Verdict{
		verdict(mine, true, row(spend, 200, 1)), verdict(yours, true, row(theirs, 300, 1)),
	})
	b.same("closing", b.closing(yours), yours)
	b.wantBalanced(mine.Account, yours.Account)
}

func months(t *testing.T, b *bench) {
	december := spend
	december.Period = "m2026-12-01"
	first := time.Date(2026, time.December, 1, 0, 0, 0, 0, time.UTC)
	var all []ledger.Closing
	for i, minted := range []time.Time{
		ledger.MinInstant, first.Add(-time.Microsecond), first, time.Date(2024, time.February, 29, 23, 59, 59, 0, time.UTC),
		time.Date(2031, time.July, 1, 0, 0, 0, 0, time.UTC), ledger.EndInstant.Add(-time.Microsecond),
	} {
		c := refund(i, line(spend, 1), line(december, 2))
		c.Minted, c.ClosedAt = minted, minted
		all = append(all, c)
	}
	for i, c := range all[:3] { // each by itself, then the rest in one call
		b.same("verdict", b.append(c)[0], verdict(c, true, row(spend, quota.Amount(i+1), int64(i+1)), row(december, quota.Amount(2*i+2), int64(i+1))))
	}
	b.append(all[3:]...)
	for _, c := range all {
		want := c
		want.Lines = []ledger.Line{line(spend, 1), line(december, 2)}
		b.same("closing", b.closing(c), want)
		if got := b.append(c)[0]; got.Posted {
			t.Errorf("the closing of %s was posted twice", c.Minted)
		}
	}
	// Another instant of the same month is the same closing.
	moved := all[2]
	moved.Minted = moved.Minted.Add(time.Hour)
	if b.append(moved)[0].Posted {
		t.Error("another mint instant in the same month was posted again")
	}
	b.wantUsage(spend, 6, 4)
	b.wantBalanced(spend.Account)
}
