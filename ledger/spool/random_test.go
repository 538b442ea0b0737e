package spool_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// TestAnyHistory takes the ledger away and back, loses answers, drains and
// restarts at random between closings of a few reservations. In the end every
// body that was acknowledged as the winner is in the ledger, or has lost against
// one of a higher rank, or is filed; and what is charged is what the winners
// say.
func TestAnyHistory(t *testing.T) {
	r, accounts := newRig(t, nil), 0
	rapid.Check(t, func(rt *rapid.T) {
		accounts++ // each history has an account of its own
		row := spend
		row.Account = fmt.Sprintf("account-%d", accounts)
		filedBefore := len(r.filed())
		type acknowledged struct{ number, amount int }
		winners := map[acknowledged]bool{} // of rank refunded
		steps := rapid.IntRange(5, 40).Draw(rt, "steps")
		for range steps {
			switch rapid.SampledFrom([]string{"append", "append", "append", "trouble", "drain", "restart", "usage"}).Draw(rt, "step") {
			case "append":
				number, amount := rapid.IntRange(1, 4).Draw(rt, "reservation"), rapid.IntRange(1, 2).Draw(rt, "amount")
				rank := rapid.SampledFrom([]ledger.Rank{ledger.RankExpired, ledger.RankRefunded}).Draw(rt, "rank")
				c := closing(number, rank, quota.Amount(amount))
				c.Account = row.Account
				verdicts, err := r.Append(context.Background(), []ledger.Closing{c})
				if err != nil {
					rt.Fatalf("not acknowledged: %v", err)
				}
				if v := verdicts[0]; v.Rank == ledger.RankRefunded {
					winners[acknowledged{number, int(v.Body[1])}] = true
				} else if rank == ledger.RankRefunded {
					rt.Fatalf("a Refund lost against %+v", v)
				}
			case "trouble":
				kind := rapid.SampledFrom([]string{"none", "away", "mute"}).Draw(rt, "kind")
				r.books.away.Store(kind == "away")
				r.books.mute.Store(kind == "mute")
			case "drain":
				if err := r.Drain(context.Background()); err != nil && !errors.Is(err, ledger.ErrUnavailable) {
					rt.Fatal(err)
				}
			case "restart":
				r.restart()
			case "usage":
				_, err := r.Usage(context.Background(), []ledger.UsageKey{row})
				if err != nil && !errors.Is(err, ledger.ErrUnavailable) {
					rt.Fatal(err)
				}
			}
		}
		r.books.away.Store(false)
		r.books.mute.Store(false)
		r.drain()
		filed := len(r.filed()) - filedBefore
		var sum quota.Amount
		for number := range 5 {
			c := closing(number, ledger.RankRefunded, 0)
			kept, err := r.books.Ledger.Closing(context.Background(), row.Account, c.Reservation, c.Minted)
			if errors.Is(err, ledger.ErrNotFound) {
				kept = ledger.Closing{}
			} else if err != nil {
				rt.Fatal(err)
			} else {
				sum += kept.Lines[0].Amount
			}
			for amount := 1; amount <= 2; amount++ {
				if winners[acknowledged{number, amount}] && kept.Body != closing(number, ledger.RankRefunded, quota.Amount(amount)).Body {
					if filed--; filed < 0 {
						rt.Fatalf("reservation %d, amount %d was acknowledged, is not in the ledger and is not filed", number, amount)
					}
				}
			}
		}
		usage, err := r.books.Ledger.Usage(context.Background(), []ledger.UsageKey{row})
		if err != nil || usage[0].Used != sum {
			rt.Fatalf("used %+v, want %d: %v", usage, sum, err)
		}
		if found, err := r.books.Ledger.CheckSums(context.Background(), row.Account); err != nil || len(found) > 0 {
			rt.Fatalf("the books do not add up: %+v, %v", found, err)
		}
		if r.value("closings") != 0 {
			rt.Fatalf("%v closings are left", r.value("closings"))
		}
	})
}
