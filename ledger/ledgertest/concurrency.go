package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

func everywhereOnce(t *testing.T, b *bench) {
	const engines, callers, reservations = 3, 4, 25
	var wait sync.WaitGroup
	var mu sync.Mutex
	posted := map[[16]byte]int{}
	winners := map[[16]byte][16]byte{}
	for e := range engines {
		l := b.open()
		for c := range callers {
			wait.Go(func() {
				for r := range reservations {
					// Each caller has a body of its own: only one can win.
					closing := refund(r, line(spend, quota.Amount(1+e*callers+c)))
					closing.Body = [16]byte{byte(e), byte(c)}
					verdicts, err := l.Append(b.ctx, []ledger.Closing{closing, closing})
					if err != nil {
						t.Errorf("append: %v", err)
						return
					}
					mu.Lock()
					for _, v := range verdicts {
						if v.Posted {
							posted[closing.Reservation]++
						}
						if winner, known := winners[closing.Reservation]; known && winner != v.Body {
							t.Errorf("reservation %x has two winners", closing.Reservation)
						}
						winners[closing.Reservation] = v.Body
					}
					mu.Unlock()
				}
			})
		}
	}
	wait.Wait()
	var sum quota.Amount
	for r := range reservations {
		if posted[id(r)] != 1 {
			t.Errorf("reservation %d was posted %d times", r, posted[id(r)])
		}
		winner := winners[id(r)]
		sum += quota.Amount(1 + int(winner[0])*callers + int(winner[1]))
	}
	b.wantUsage(spend, sum, reservations)
	b.wantBalanced(spend.Account)
}

func oppositeOrders(t *testing.T, b *bench) {
	const engines, rounds, accounts, reservations = 4, 12, 4, 10
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	var wait sync.WaitGroup
	for e := range engines {
		l := b.open()
		wait.Go(func() {
			for round := range rounds {
				var closings []ledger.Closing
				for i := range accounts * reservations {
					at := i
					if e%2 == 1 {
						at = accounts*reservations - 1 - i
					}
					account := fmt.Sprintf("account-%d", at%accounts)
					first := ledger.UsageKey{Account: account, Limit: "a", Period: "p", Meter: "m"}
					second := ledger.UsageKey{Account: account, Limit: "b", Period: "p", Meter: "m"}
					if e%2 == 1 {
						first, second = second, first
					}
					// Half the reservations are the same in every engine, and
					// expire in half the rounds.
					number := round*1000 + at
					if at%2 == 1 {
						number += 100_000 * (e + 1)
					}
					c := refund(number, line(first, 1), line(second, 1))
					c.Reservation[13] = byte(number >> 16)
					if (round+e)%2 == 0 {
						c.Rank = ledger.RankExpired
					}
					c.Account = account
					closings = append(closings, c)
				}
				if _, err := l.Append(ctx, closings); err != nil {
					t.Errorf("engine %d, round %d: %v", e, round, err)
					return
				}
			}
		})
	}
	wait.Wait()
	for account := range accounts {
		b.wantBalanced(fmt.Sprintf("account-%d", account))
	}
}

func cancelled(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	c := refund(1, line(spend, 5))
	if _, err := b.engine().Append(ctx, []ledger.Closing{c}); !errors.Is(err, ledger.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("append: error %v, want ErrUnavailable and context.Canceled", err)
	}
	if _, err := b.engine().Usage(ctx, []ledger.UsageKey{spend}); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("usage: error %v, want ErrUnavailable", err)
	}
	if err := b.engine().Ping(ctx); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("ping: error %v, want ErrUnavailable", err)
	}
	b.append(c)
	b.wantUsage(spend, 5, 1)
	if err := b.engine().Ping(b.ctx); err != nil {
		t.Errorf("ping: %v", err)
	}

	// Calls that are cut off at any moment, then repeated, post once.
	for i := range 40 {
		c := refund(100+i, line(spend, 1))
		ctx, cancel := context.WithTimeout(b.ctx, time.Duration(i)*50*time.Microsecond)
		if _, err := b.engine().Append(ctx, []ledger.Closing{c}); err != nil && !errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("append: error %v, want ErrUnavailable", err)
		}
		cancel()
		b.append(c)
	}
	b.wantUsage(spend, 45, 41)
	b.wantBalanced(spend.Account)
}

func closedRefuses(t *testing.T, b *bench) {
	l := b.database.Open(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	_, appendErr := l.Append(b.ctx, []ledger.Closing{refund(1)})
	_, usageErr := l.Usage(b.ctx, []ledger.UsageKey{spend})
	_, accountErr := l.AccountUsage(b.ctx, spend.Account, "", 1)
	_, closingErr := l.Closing(b.ctx, spend.Account, id(1), noon)
	_, sumsErr := l.CheckSums(b.ctx, spend.Account)
	_, _, adjustErr := l.Adjust(b.ctx, adjustment(1, spend, 1))
	_, adjustmentsErr := l.Adjustments(b.ctx, spend.Account, nil, 1)
	_, repriceErr := l.Reprice(b.ctx, correction(1), []ledger.Repricing{repricing(refund(1), line(spend, 1))})
	_, closingsErr := l.Closings(b.ctx, ledger.ClosingsQuery{From: noon, To: noon.Add(1), Limit: 1})
	_, changesErr := l.Changes(b.ctx, "", 1)
	_, reportErr := l.Report(b.ctx, ledger.ReportQuery{From: noon, To: noon.Add(1), Grain: ledger.GrainHour, Limit: 1})
	_, maintainErr := l.Maintain(b.ctx, noon, 0)
	for what, err := range map[string]error{
		"adjust": adjustErr, "adjustments": adjustmentsErr, "reprice": repriceErr, "closings": closingsErr, "changes": changesErr,
		"append": appendErr, "usage": usageErr, "account usage": accountErr, "closing": closingErr, "check sums": sumsErr,
		"report": reportErr, "maintain": maintainErr, "ping": l.Ping(b.ctx),
	} {
		if !errors.Is(err, ledger.ErrClosed) || !errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("%s: error %v, want ErrClosed", what, err)
		}
	}
	// Others on the same database go on.
	b.append(refund(1, line(spend, 1)))
}

func closeWaits(t *testing.T, b *bench) {
	l := b.database.Open(t)
	const callers = 8
	var wait sync.WaitGroup
	var mu sync.Mutex
	var kept []ledger.Closing
	started := make(chan struct{}, callers)
	for caller := range callers {
		wait.Go(func() {
			for i := 0; ; i++ {
				c := refund(caller*1000+i, line(spend, 1))
				_, err := l.Append(b.ctx, []ledger.Closing{c})
				if errors.Is(err, ledger.ErrClosed) {
					return
				}
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				mu.Lock()
				kept = append(kept, c)
				mu.Unlock()
				if i == 0 {
					started <- struct{}{}
				}
			}
		})
	}
	for range callers {
		<-started
	}
	if err := l.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	wait.Wait()
	for _, c := range kept {
		b.closing(c)
	}
	b.wantUsage(spend, quota.Amount(len(kept)), b.usage(spend).Version)
	b.wantBalanced(spend.Account)
}
