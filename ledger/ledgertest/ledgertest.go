package ledgertest

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// Database is a fresh database with the schema in it.
type Database interface {
	// Open opens one more engine on the database. The suite closes it.
	Open(tb testing.TB) ledger.Ledger

	// Damage sets used of a usage row behind the engines' back.
	Damage(tb testing.TB, key ledger.UsageKey, used quota.Amount)

	// Lose deletes a usage row behind the engines' back.
	Lose(tb testing.TB, key ledger.UsageKey)
}

// Run runs the suite.
func Run(t *testing.T, fresh func(testing.TB) Database) {
	cases := []struct {
		name string
		run  func(*testing.T, *bench)
	}{
		{"a closing is kept in full", keptInFull},
		{"the same closing changes nothing", sameTwice},
		{"the first of two bodies stays", firstBodyStays},
		{"a refund replaces an expiry by the difference", refundReplaces},
		{"an expiry does not replace a refund", expiryStaysOut},
		{"a line that is dropped is given back", droppedLine},
		{"one call is in order", oneCallInOrder},
		{"an account's reservations are its own", ownReservations},
		{"versions grow by one a transaction", versions},
		{"nothing charged changes no version", zeroLines},
		{"a reservation's month is that of its making", months},
		{"usage answers every key", usageAnswers},
		{"an account's usage is sorted and bounded", accountUsage},
		{"odd texts come back as they went", oddTexts},
		{"closings out of bounds are refused", outOfBounds},
		{"queries out of bounds are refused", queriesOutOfBounds},
		{"the largest closing is kept", largestClosing},
		{"the largest call is kept", largestCall},
		{"an overflow writes nothing", overflow},
		{"damaged books are found", damagedBooks},
		{"a report sums up totals", reportByHand},
		{"a report has adjustments and corrections", reportOfChanges},
		{"any report agrees with a naive sum", reportsAgree},
		{"reports are exact while deltas are rolled up", reportsDuringRolling},
		{"a report whose sum overflows says so", reportOverflow},
		{"reports out of bounds are refused", reportsOutOfBounds},
		{"one closing from everywhere is posted once", everywhereOnce},
		{"opposite orders do not deadlock", oppositeOrders},
		{"a cancelled call is unavailable, and can be repeated", cancelled},
		{"a closed engine refuses", closedRefuses},
		{"calls under way finish before close returns", closeWaits},
		{"an adjustment is posted once", adjustsOnce},
		{"an adjustment from everywhere is posted once", adjustedFromEverywhere},
		{"adjustments with a floor from everywhere leave no row below zero", flooredFromEverywhere},
		{"adjustments are listed, the newest first", adjustmentsInOrder},
		{"an adjustment that overflows writes nothing", adjustmentOverflows},
		{"adjustments out of bounds are refused", adjustmentsOutOfBounds},
		{"a repricing posts the difference", repricesByDifference},
		{"a repricing meets only the closing that was looked at", repricesOnlyWhatStands},
		{"repricings and appends do not deadlock", repricesBesideAppends},
		{"repricings out of bounds are refused", repricingsOutOfBounds},
		{"closings come in pages", closingsByPages},
		{"a walk through closings goes in bounded steps", closingsInSteps},
		{"queries of closings out of bounds are refused", closingsOutOfBounds},
		{"changes are followed", changesAreFollowed},
		{"any sequence agrees with the model", agreesWithModel},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, &bench{t: t, ctx: t.Context(), database: fresh(t)})
		})
	}
}

// bench is what one case works with.
type bench struct {
	t        *testing.T
	ctx      context.Context
	database Database
	first    ledger.Ledger
}

// engine returns the case's first engine.
func (b *bench) engine() ledger.Ledger {
	if b.first == nil {
		b.first = b.open()
	}
	return b.first
}

// open opens one more engine, closed when the case ends.
func (b *bench) open() ledger.Ledger {
	b.t.Helper()
	l := b.database.Open(b.t)
	b.t.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.t.Errorf("close: %v", err)
		}
	})
	return l
}

func (b *bench) append(closings ...ledger.Closing) []ledger.Verdict {
	b.t.Helper()
	verdicts, err := b.engine().Append(b.ctx, closings)
	if err != nil {
		b.t.Fatalf("append: %v", err)
	}
	if len(verdicts) != len(closings) {
		b.t.Fatalf("append of %d closings returned %d verdicts", len(closings), len(verdicts))
	}
	return verdicts
}

func (b *bench) usage(key ledger.UsageKey) ledger.Usage {
	b.t.Helper()
	usage, err := b.engine().Usage(b.ctx, []ledger.UsageKey{key})
	if err != nil {
		b.t.Fatalf("usage: %v", err)
	}
	return usage[0]
}

// wantUsage checks one row.
func (b *bench) wantUsage(key ledger.UsageKey, used quota.Amount, version int64) {
	b.t.Helper()
	want := ledger.Usage{UsageKey: key, Used: used, Version: version}
	b.same("usage", b.usage(key), want)
}

// wantBalanced checks that the books of the accounts add up.
func (b *bench) wantBalanced(accounts ...string) {
	b.t.Helper()
	for _, account := range accounts {
		mismatches, err := b.engine().CheckSums(b.ctx, account)
		if err != nil {
			b.t.Fatalf("check sums: %v", err)
		}
		if len(mismatches) > 0 {
			b.t.Errorf("the books of %q do not add up: %+v", account, mismatches)
		}
	}
}

func (b *bench) closing(c ledger.Closing) ledger.Closing {
	b.t.Helper()
	got, err := b.engine().Closing(b.ctx, c.Account, c.Reservation, c.Minted)
	if err != nil {
		b.t.Fatalf("closing: %v", err)
	}
	return got
}

func (b *bench) same(what string, got, want any) {
	b.t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		b.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// noon is the instant around which cases happen.
var noon = time.Date(2026, time.November, 15, 12, 0, 0, 0, time.UTC)

// id returns a reservation id.
func id(number int) [16]byte {
	var id [16]byte
	id[7], id[14], id[15] = 1, byte(number>>8), byte(number)
	return id
}

// spend is the row that most cases charge.
var spend = ledger.UsageKey{Account: "acme", Limit: "spend.0123abcd", Scope: "model=gpt-4o", Period: "m2026-11-01", Meter: quota.MeterCost}

// line charges an amount to a row.
func line(key ledger.UsageKey, amount quota.Amount) ledger.Line {
	return ledger.Line{Limit: key.Limit, Scope: key.Scope, Period: key.Period, Meter: key.Meter, Amount: amount}
}

// refund returns a refund of a reservation of the first line's account.
func refund(number int, lines ...ledger.Line) ledger.Closing {
	return ledger.Closing{
		Account: spend.Account, Reservation: id(number),
		Minted: noon, ClosedAt: noon.Add(3 * time.Second),
		Rank: ledger.RankRefunded, Body: [16]byte{1}, Outcome: []byte("the outcome"),
		PriceVersion: "2026-11-01", Labels: map[string]string{"model": "gpt-4o"},
		Lines: lines,
	}
}

// expiry returns the closing of a lease that ended.
func expiry(number int, lines ...ledger.Line) ledger.Closing {
	c := refund(number, lines...)
	c.Rank, c.Body, c.Outcome, c.ClosedAt = ledger.RankExpired, [16]byte{}, nil, noon.Add(time.Minute)
	return c
}

// verdict returns what Append must say of a closing that won.
func verdict(c ledger.Closing, posted bool, usage ...ledger.Usage) ledger.Verdict {
	return ledger.Verdict{
		Posted: posted, Rank: c.Rank, Body: c.Body, Outcome: c.Outcome, Late: c.Late, ClosedAt: c.ClosedAt, Usage: usage,
	}
}

func row(key ledger.UsageKey, used quota.Amount, version int64) ledger.Usage {
	return ledger.Usage{UsageKey: key, Used: used, Version: version}
}
