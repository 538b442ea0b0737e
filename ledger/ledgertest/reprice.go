package ledgertest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// correction returns a correction of prices.
func correction(number int) ledger.Correction {
	c := ledger.Correction{At: noon.Add(time.Hour), By: "ops@example.com", Reason: "the price was wrong"}
	c.ID = id(number)
	return c
}

// repricing returns the repricing of a closing to the lines.
func repricing(c ledger.Closing, lines ...ledger.Line) ledger.Repricing {
	return ledger.Repricing{Account: c.Account, Reservation: c.Reservation, Minted: c.Minted, Body: c.Body, Rank: c.Rank, Lines: lines}
}

func (b *bench) reprice(c ledger.Correction, wantRepriced int, wantDifference quota.NanoUSD, wantUsage []ledger.Usage, repricings ...ledger.Repricing) {
	b.t.Helper()
	got, err := b.engine().Reprice(b.ctx, c, repricings)
	if err != nil || got.Closings != wantRepriced || got.Difference != wantDifference {
		b.t.Fatalf("reprice: %d closings by %s in all, %v; want %d by %s", got.Closings, got.Difference, err, wantRepriced, wantDifference)
	}
	b.same("usage after a repricing", got.Usage, wantUsage)
}

func repricesByDifference(_ *testing.T, b *bench) {
	totals := ledger.UsageKey{Account: spend.Account, Period: "m2026-11-01", Meter: quota.MeterCost}
	tokens := totals
	tokens.Meter = quota.MeterTokens
	first := refund(1, line(totals, 1000), line(tokens, 30), line(spend, 3000))
	second := refund(2, line(totals, 500), line(spend, 1500))
	b.append(first, second)

	half := []ledger.Repricing{
		repricing(second, line(spend, 750), line(totals, 250)),
		repricing(first, line(spend, 1500), line(totals, 500)),
	}
	b.reprice(correction(1), 2, -750, []ledger.Usage{row(totals, 750, 2), row(spend, 2250, 2)}, half...)
	b.wantUsage(tokens, 30, 1)
	b.wantBalanced(spend.Account)
	// The closing stays what it was; what it is charged is the new amount.
	repriced := first
	repriced.Lines = []ledger.Line{line(totals, 500), line(tokens, 30), line(spend, 1500)}
	b.same("closing", b.closing(first), repriced)

	b.reprice(correction(1), 0, 0, nil, half...)
	b.reprice(correction(2), 0, 0, nil, half...)
	b.reprice(correction(3), 0, 0, nil)
	// Part of it, and back again.
	b.reprice(correction(3), 1, 0, []ledger.Usage{row(spend, 3750, 3)}, half[0], repricing(first, line(spend, 3000)))
	b.wantUsage(spend, 3750, 3)
	b.same("the refund again", b.append(first)[0].Usage, []ledger.Usage{row(totals, 750, 2), row(tokens, 30, 1), row(spend, 3750, 3)})
	b.wantBalanced(spend.Account)
}

func repricesOnlyWhatStands(t *testing.T, b *bench) {
	expired := expiry(1, line(spend, 1000))
	b.append(expired)
	b.reprice(correction(1), 1, 0, []ledger.Usage{row(spend, 400, 2)}, repricing(expired, line(spend, 400)))

	// A Refund that comes late posts the difference to what is charged now.
	late := refund(1, line(spend, 200))
	b.same("verdict", b.append(late)[0], verdict(late, true, row(spend, 200, 3)))
	b.same("closing", b.closing(late), late)
	b.reprice(correction(1), 0, 0, nil, repricing(expired, line(spend, 100)))
	wrong := repricing(late, line(spend, 100))
	wrong.Body[3]++
	b.reprice(correction(1), 0, 0, nil, wrong)
	b.wantUsage(spend, 200, 3)
	b.differenceOfWhatStands()
	b.reprice(correction(2), 1, 0, []ledger.Usage{row(spend, 100, 4)}, repricing(late, line(spend, 100)))

	b.reprice(correction(1), 0, 0, nil, repricing(refund(2), line(spend, 1)))
	b.wantBalanced(spend.Account)

	other := correction(1)
	other.Reason = "another"
	_, err := b.engine().Reprice(b.ctx, other, []ledger.Repricing{repricing(late, line(spend, 7))})
	if !errors.Is(err, ledger.ErrReused) {
		t.Errorf("another correction of the same id: error %v, want ErrReused", err)
	}
	elsewhere := spend
	elsewhere.Scope = "other"
	_, err = b.engine().Reprice(b.ctx, correction(3), []ledger.Repricing{repricing(late, line(spend, 7), line(elsewhere, 1))})
	wantInvalid(t, err, `scope "other"`)
	b.wantUsage(spend, 100, 4)
	b.wantBalanced(spend.Account)
}

// differenceOfWhatStands reprices totals of three closings, of which one has been
// replaced meanwhile: what is told is what was posted.
func (b *bench) differenceOfWhatStands() {
	b.t.Helper()
	totals := ledger.UsageKey{Account: "other", Period: "m2026-11-01", Meter: quota.MeterCost}
	of := func(c ledger.Closing) ledger.Closing { c.Account = totals.Account; return c }
	first, second, third := of(refund(1, line(totals, 1000))), of(expiry(2, line(totals, 2000))), of(refund(3, line(totals, 4000)))
	b.append(first, second, third)
	b.append(of(refund(2, line(totals, 500))))
	b.reprice(correction(7), 2, -2750, []ledger.Usage{row(totals, 2750, 3)},
		repricing(first, line(totals, 250)), repricing(second, line(totals, 1)), repricing(third, line(totals, 2000)))
	b.wantBalanced(totals.Account)
}

func repricesBesideAppends(t *testing.T, b *bench) {
	const engines, rounds, reservations = 3, 8, 12
	other := spend
	other.Limit = "another.0123abcd"
	var wait sync.WaitGroup
	for e := range engines {
		l := b.open()
		wait.Go(func() {
			for round := range rounds {
				var closings []ledger.Closing
				var repricings []ledger.Repricing
				for i := range reservations {
					if e%2 == 1 {
						i = reservations - 1 - i
					}
					c := expiry(round*reservations+i, line(spend, 100), line(other, 100))
					late := refund(round*reservations+i, line(other, 50), line(spend, 50))
					if (i+e)%3 == 0 {
						c = late
					}
					closings = append(closings, c)
					repricings = append(repricings, repricing(c, line(spend, quota.Amount(e)), line(other, 7)))
				}
				if _, err := l.Append(b.ctx, closings); err != nil {
					t.Errorf("append: %v", err)
				}
				if _, err := l.Reprice(b.ctx, correction(e+1), repricings); err != nil {
					t.Errorf("reprice: %v", err)
				}
				if _, _, err := l.Adjust(b.ctx, adjustment(round*engines+e, spend, -3)); err != nil {
					t.Errorf("adjust: %v", err)
				}
			}
		})
	}
	wait.Wait()
	b.wantBalanced(spend.Account)
}

func repricingsOutOfBounds(t *testing.T, b *bench) {
	c := refund(1, line(spend, 1))
	b.append(c)
	tokens := spend
	tokens.Meter = quota.MeterTokens
	for field, fault := range map[string]func(*ledger.Correction, *ledger.Repricing){
		"id: ":                            func(c *ledger.Correction, _ *ledger.Repricing) { c.ID = [16]byte{} },
		"at: ":                            func(c *ledger.Correction, _ *ledger.Repricing) { c.At = time.Time{} },
		"by: ":                            func(c *ledger.Correction, _ *ledger.Repricing) { c.By = "" },
		"reason: ":                        func(c *ledger.Correction, _ *ledger.Repricing) { c.Reason = "" },
		"repricings[1].account: ":         func(_ *ledger.Correction, r *ledger.Repricing) { r.Account = "" },
		"repricings[1].reservation: ":     func(_ *ledger.Correction, r *ledger.Repricing) { r.Reservation = [16]byte{} },
		"repricings[1].minted: ":          func(_ *ledger.Correction, r *ledger.Repricing) { r.Minted = time.Time{} },
		"repricings[1].rank: ":            func(_ *ledger.Correction, r *ledger.Repricing) { r.Rank = 0 },
		"repricings[1].lines[0].amount: ": func(_ *ledger.Correction, r *ledger.Repricing) { r.Lines[0].Amount = -1 },
		"repricings[1].lines[0].meter: ":  func(_ *ledger.Correction, r *ledger.Repricing) { r.Lines[0] = line(tokens, 1) },
		"repricings[1].lines[1]: ":        func(_ *ledger.Correction, r *ledger.Repricing) { r.Lines = append(r.Lines, r.Lines[0]) },
		"repricings[1]: ":                 func(_ *ledger.Correction, r *ledger.Repricing) { r.Reservation = c.Reservation },
	} {
		correct, faulty := correction(1), repricing(refund(2), line(spend, 5))
		fault(&correct, &faulty)
		_, err := b.engine().Reprice(b.ctx, correct, []ledger.Repricing{repricing(c, line(spend, 5)), faulty})
		wantInvalid(t, err, field)
	}
	_, err := b.engine().Reprice(b.ctx, correction(1), make([]ledger.Repricing, ledger.MaxReprice+1))
	wantInvalid(t, err, "repricings: ")
	b.wantUsage(spend, 1, 1)

	// The largest call.
	var many []ledger.Repricing
	var closings []ledger.Closing
	for i := range ledger.MaxReprice {
		closings = append(closings, refund(10+i, line(spend, 2)))
		many = append(many, repricing(closings[i], line(spend, 1)))
	}
	b.append(closings...)
	b.reprice(correction(1), len(many), 0, []ledger.Usage{row(spend, 1+ledger.MaxReprice, 3)}, many...)
	b.wantBalanced(spend.Account)
}
