package ledgertest

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// adjustment returns an adjustment of a row.
func adjustment(number int, key ledger.UsageKey, amount quota.Amount) ledger.Adjustment {
	a := ledger.Adjustment{Body: [16]byte{9}, Key: key, Amount: amount, At: noon, By: "ops@example.com", Reason: "a bill that differs"}
	a.ID = id(number)
	a.ID[0] = 0xad // as no reservation
	return a
}

func (b *bench) adjust(a ledger.Adjustment, posted bool, want ledger.Usage) {
	b.t.Helper()
	usage, got, err := b.engine().Adjust(b.ctx, a)
	if err != nil || got != posted {
		b.t.Fatalf("adjust: posted %t, %v; want %t", got, err, posted)
	}
	b.same("usage after an adjustment", usage, want)
}

func (b *bench) adjustments(account string, before *ledger.Adjustment, limit int) []ledger.Adjustment {
	b.t.Helper()
	found, err := b.engine().Adjustments(b.ctx, account, before, limit)
	if err != nil {
		b.t.Fatalf("adjustments: %v", err)
	}
	return found
}

func adjustsOnce(t *testing.T, b *bench) {
	b.append(refund(1, line(spend, 700)))
	credit := adjustment(1, spend, -1000)
	b.adjust(credit, true, row(spend, -300, 2)) // below zero: a credit is one
	b.adjust(credit, false, row(spend, -300, 2))
	later := credit // a retry has its own clock, and what follows from it
	later.At, later.Key.Period, later.By = noon.AddDate(0, 1, 0), "m2026-12-01", "another"
	b.append(refund(2, line(spend, 50)))
	b.adjust(later, false, row(spend, -250, 3))
	b.wantUsage(later.Key, 0, 0)

	other := credit
	other.Body[0]++
	if _, _, err := b.engine().Adjust(b.ctx, other); !errors.Is(err, ledger.ErrReused) || errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("another body: error %v, want ErrReused", err)
	}
	taken := credit
	taken.ID = id(2)
	if _, _, err := b.engine().Adjust(b.ctx, taken); !errors.Is(err, ledger.ErrReused) {
		t.Errorf("the id of a reservation: error %v, want ErrReused", err)
	}
	b.wantUsage(spend, -250, 3)

	// A row that nothing was charged on yet, and an account's totals.
	totals := ledger.UsageKey{Account: "new", Period: "m2026-11-01", Meter: quota.MeterTokens}
	b.adjust(adjustment(2, totals, 5), true, row(totals, 5, 1))
	b.wantBalanced(spend.Account, "new")
}

// flooredFromEverywhere has more taken away at once than the row has.
func flooredFromEverywhere(t *testing.T, b *bench) {
	const engines, callers = 3, 4
	b.append(refund(1, line(spend, 50)))
	var wait sync.WaitGroup
	var mu sync.Mutex
	posted, refused := 0, 0
	for i := range engines {
		l := b.open()
		for j := range callers {
			wait.Go(func() {
				a := adjustment(10+i*callers+j, spend, -10)
				a.Floor = true
				_, done, err := l.Adjust(b.ctx, a)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, ledger.ErrBelowZero) && !errors.Is(err, ledger.ErrUnavailable):
					refused++
				case err != nil || !done:
					t.Errorf("adjust: %t, %v", done, err)
				default:
					posted++
				}
			})
		}
	}
	wait.Wait()
	if posted != 5 || refused != engines*callers-5 {
		t.Errorf("%d posted and %d refused", posted, refused)
	}
	b.wantUsage(spend, 0, 6)
	if found := b.adjustments(spend.Account, nil, 100); len(found) != 5 {
		t.Errorf("%d are kept", len(found))
	}
	b.wantBalanced(spend.Account)
}

func adjustedFromEverywhere(t *testing.T, b *bench) {
	const engines, callers = 3, 4
	a := adjustment(1, spend, 10)
	var wait sync.WaitGroup
	var mu sync.Mutex
	times := 0
	for range engines {
		l := b.open()
		for range callers {
			wait.Go(func() {
				_, posted, err := l.Adjust(b.ctx, a)
				if err != nil {
					t.Errorf("adjust: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if posted {
					times++
				}
			})
		}
	}
	wait.Wait()
	if times != 1 {
		t.Errorf("posted %d times", times)
	}
	b.wantUsage(spend, 10, 1)
	b.wantBalanced(spend.Account)
}

func adjustmentsInOrder(_ *testing.T, b *bench) {
	var want []ledger.Adjustment // the newest first
	for i := range 7 {
		a := adjustment(i, spend, quota.Amount(i+1))
		a.Reason = strings.Repeat("é", i+1)
		a.At = noon.Add(time.Duration(i/2) * time.Hour) // some at one instant
		b.adjust(a, true, b.usageAfter(a))
		want = append([]ledger.Adjustment{a}, want...)
	}
	other := spend
	other.Account = "other"
	b.adjust(adjustment(100, other, 1), true, row(other, 1, 1))

	b.same("all", b.adjustments(spend.Account, nil, 100), want)
	var paged []ledger.Adjustment
	for page := b.adjustments(spend.Account, nil, 2); len(page) > 0; {
		paged = append(paged, page...)
		page = b.adjustments(spend.Account, &page[len(page)-1], 2)
	}
	b.same("by pages", paged, want)
}

// usageAfter returns what the adjustment's row is to be.
func (b *bench) usageAfter(a ledger.Adjustment) ledger.Usage {
	u := b.usage(a.Key)
	u.Used += a.Amount
	u.Version++
	return u
}

func adjustmentOverflows(t *testing.T, b *bench) {
	b.append(refund(1, line(spend, 1)))
	for _, edge := range []quota.Amount{math.MaxInt64, math.MinInt64} {
		b.database.Damage(t, spend, edge)
		beyond := adjustment(1, spend, 1)
		if edge < 0 {
			beyond.Amount = -1
		}
		if _, _, err := b.engine().Adjust(b.ctx, beyond); err == nil || errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("beyond %d: error %v, want one that is no ErrUnavailable", edge, err)
		}
		b.wantUsage(spend, edge, 1)
	}
	if found := b.adjustments(spend.Account, nil, 1); len(found) > 0 {
		t.Errorf("what overflowed is kept: %+v", found)
	}
	b.database.Damage(t, spend, 1)
	b.wantBalanced(spend.Account)
}

func adjustmentsOutOfBounds(t *testing.T, b *bench) {
	long := strings.Repeat("x", ledger.MaxTextBytes+1)
	for field, fault := range map[string]func(*ledger.Adjustment){
		"id: ":             func(a *ledger.Adjustment) { a.ID = [16]byte{} },
		"body: ":           func(a *ledger.Adjustment) { a.Body = [16]byte{} },
		"amount: is 0":     func(a *ledger.Adjustment) { a.Amount = 0 },
		"amount: 9":        func(a *ledger.Adjustment) { a.Amount = quota.MaxAmount + 1 },
		"amount: -9":       func(a *ledger.Adjustment) { a.Amount = -quota.MaxAmount - 1 },
		"at: 0001":         func(a *ledger.Adjustment) { a.At = time.Time{} },
		"at: 9999":         func(a *ledger.Adjustment) { a.At = ledger.EndInstant },
		"by: is empty":     func(a *ledger.Adjustment) { a.By = "" },
		"by: has 129":      func(a *ledger.Adjustment) { a.By = long[:ledger.MaxByBytes+1] },
		"reason: is empty": func(a *ledger.Adjustment) { a.Reason = "" },
		"reason: has 1025": func(a *ledger.Adjustment) { a.Reason = long },
		"reason: contains": func(a *ledger.Adjustment) { a.Reason = "a\x00" },
		"account: ":        func(a *ledger.Adjustment) { a.Key.Account = "" },
		"limit: ":          func(a *ledger.Adjustment) { a.Key.Limit = long },
		"scope: ":          func(a *ledger.Adjustment) { a.Key.Scope = "\xff" },
		"period: ":         func(a *ledger.Adjustment) { a.Key.Period = "" },
		"meter: ":          func(a *ledger.Adjustment) { a.Key.Meter = "" },
	} {
		a := adjustment(1, spend, 5)
		fault(&a)
		_, _, err := b.engine().Adjust(b.ctx, a)
		wantInvalid(t, err, field)
	}
	b.wantUsage(spend, 0, 0)
	for _, limit := range []int{0, -1, ledger.MaxPage + 1} {
		_, err := b.engine().Adjustments(b.ctx, spend.Account, nil, limit)
		wantInvalid(t, err, "limit: ")
	}
	_, err := b.engine().Adjustments(b.ctx, "", nil, 1)
	wantInvalid(t, err, "account: ")
	_, err = b.engine().Adjustments(b.ctx, spend.Account, &ledger.Adjustment{}, 1)
	wantInvalid(t, err, "before.at: ")
	// The largest that fits.
	a := adjustment(1, spend, -quota.MaxAmount)
	a.By, a.Reason = long[:ledger.MaxByBytes], long[:ledger.MaxReasonBytes]
	b.adjust(a, true, row(spend, -quota.MaxAmount, 1))
	b.same("kept", b.adjustments(spend.Account, nil, 1), []ledger.Adjustment{a})
}

func wantInvalid(t *testing.T, err error, field string) {
	t.Helper()
	if !errors.Is(err, ledger.ErrInvalid) || errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), field) {
		t.Errorf("error %v, want ErrInvalid about %s", err, field)
	}
}
