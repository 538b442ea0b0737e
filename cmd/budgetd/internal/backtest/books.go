package backtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// books is the ledger of a run: what quotas used, and nothing of single calls,
// of which each is closed once. It is for one goroutine at a time.
type books struct {
	clock  *clock
	rows   map[ledger.UsageKey]*ledger.Usage
	pruned time.Time
}

var _ ledger.Ledger = (*books)(nil)

func newBooks(c *clock) *books {
	return &books{clock: c, rows: map[ledger.UsageKey]*ledger.Usage{}}
}

// maxRows bounds the counters of quotas whose period is not over.
const maxRows = 4_000_000

// Append implements ledger.Appender.
func (b *books) Append(_ context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	b.prune()
	verdicts := make([]ledger.Verdict, len(closings))
	for i := range closings {
		c := &closings[i]
		v := &verdicts[i]
		*v = ledger.Verdict{Posted: true, Rank: c.Rank, Body: c.Body, Outcome: c.Outcome, Late: c.Late, ClosedAt: c.ClosedAt}
		for _, line := range c.Lines {
			if line.Limit == "" {
				continue // totals: nothing is decided by them
			}
			key := ledger.UsageKey{Account: c.Account, Limit: line.Limit, Scope: line.Scope, Period: line.Period, Meter: line.Meter}
			row := b.rows[key]
			if row == nil {
				if len(b.rows) == maxRows {
					return nil, fmt.Errorf("%w: quotas have more than %d counters; let fewer labels split them", ledger.ErrInvalid, maxRows)
				}
				row = &ledger.Usage{UsageKey: key}
				b.rows[key] = row
			}
			sum := row.Used + line.Amount
			if sum < row.Used {
				return nil, fmt.Errorf("what quota %s used: %w", line.Limit, quota.ErrOverflow)
			}
			row.Used, row.Version = sum, row.Version+1
			v.Usage = append(v.Usage, *row)
		}
	}
	return verdicts, nil
}

// prune forgets, once a day of the run, the periods that are over and that no
// call which is under way can belong to.
func (b *books) prune() {
	now := b.clock.Now()
	if now.Sub(b.pruned) < 24*time.Hour {
		return
	}
	b.pruned = now
	for key := range b.rows {
		if over(key.Period, now) {
			delete(b.rows, key)
		}
	}
}

// over says whether a period ended more than a day ago in every time zone. A
// key is a letter and the day on which the period starts.
func over(period string, now time.Time) bool {
	if period == "" {
		return false
	}
	start, err := time.Parse(time.DateOnly, period[1:])
	if err != nil {
		return false
	}
	longest := map[byte]int{'d': 1, 'w': 7, 'm': 31, 'y': 366}[period[0]]
	return longest > 0 && now.After(start.AddDate(0, 0, longest+3))
}

// Usage implements ledger.Ledger.
func (b *books) Usage(_ context.Context, keys []ledger.UsageKey) ([]ledger.Usage, error) {
	rows := make([]ledger.Usage, len(keys))
	for i, key := range keys {
		rows[i].UsageKey = key
		if row := b.rows[key]; row != nil {
			rows[i] = *row
		}
	}
	return rows, nil
}

// Ping implements ledger.Ledger.
func (b *books) Ping(context.Context) error { return nil }

// Close implements ledger.Ledger.
func (b *books) Close() error { return nil }

// The rest of the contract is for those who look after books. Nobody does.
var errNoBooks = fmt.Errorf("the books of a backtest: %w", errors.ErrUnsupported)

func (b *books) AccountUsage(context.Context, string, string, int) ([]ledger.Usage, error) {
	return nil, errNoBooks
}

func (b *books) Closing(context.Context, string, [16]byte, time.Time) (ledger.Closing, error) {
	return ledger.Closing{}, errNoBooks
}

func (b *books) CheckSums(context.Context, string) ([]ledger.Mismatch, error) {
	return nil, errNoBooks
}

func (b *books) Adjust(context.Context, ledger.Adjustment) (ledger.Usage, bool, error) {
	return ledger.Usage{}, false, errNoBooks
}

func (b *books) Adjustments(context.Context, string, *ledger.Adjustment, int) ([]ledger.Adjustment, error) {
	return nil, errNoBooks
}

func (b *books) Reprice(context.Context, ledger.Correction, []ledger.Repricing) (ledger.Repriced, error) {
	return ledger.Repriced{}, errNoBooks
}

func (b *books) Closings(context.Context, ledger.ClosingsQuery) (ledger.ClosingsPage, error) {
	return ledger.ClosingsPage{}, errNoBooks
}

func (b *books) Changes(context.Context, string, int) (ledger.ChangesPage, error) {
	return ledger.ChangesPage{}, errNoBooks
}

func (b *books) Report(context.Context, ledger.ReportQuery) (ledger.Report, error) {
	return ledger.Report{}, errNoBooks
}

func (b *books) Maintain(context.Context, time.Time, time.Duration) (ledger.Maintenance, error) {
	return ledger.Maintenance{}, errNoBooks
}
