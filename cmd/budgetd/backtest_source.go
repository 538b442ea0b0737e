package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/backtest"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/trace"
)

// backtestFiles are calls in files.
type backtestFiles struct {
	paths    []string
	lateness time.Duration
	bar      *replayBar
}

func (b *backtestFiles) pass(_ context.Context, what string) (backtestCalls, error) {
	files, err := trace.OpenFiles(b.paths, trace.FilesOptions{Lateness: b.lateness, Read: b.bar.Add})
	if err != nil {
		return nil, err
	}
	size, err := files.Size()
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	b.bar.bytes = true
	b.bar.Stage(what, size)
	return files, nil
}

func (b *backtestFiles) accounts(ctx context.Context) (map[string]bool, error) {
	calls, err := b.pass(ctx, "reading the accounts")
	if err != nil {
		return nil, err
	}
	defer calls.Close()
	accounts, err := backtest.Accounts(calls)
	b.bar.finish()
	return accounts, err
}

func (b *backtestFiles) complete(r *backtest.Report) { r.Sources = b.paths }

// backtestLedger are the reservations of a ledger.
type backtestLedger struct {
	account     string // "": every account
	from, until string // as people write them
	bar         *replayBar

	books *app.LedgerReader
	query trace.LedgerQuery
	sum   trace.LedgerCalls
	last  *trace.Ledger // the newest reading
}

// open finds the ledger and what it has of the span.
func (b *backtestLedger) open(cmd *cobra.Command, now time.Time) (err error) {
	b.query.Account = b.account
	if b.query.From, err = parseInstant(b.from, now); err != nil {
		return usagef(cmd, "--from: %v", err)
	}
	if b.query.To, err = parseInstant(b.until, now); err != nil {
		return usagef(cmd, "--to: %v", err)
	}
	if !b.query.From.Before(b.query.To) {
		return usagef(cmd, "--from %s is not before --to %s", b.from, b.until)
	}
	c, err := config.LoadForStore(cmd.Flags(), os.LookupEnv)
	if err != nil {
		return err
	}
	if b.books, err = app.OpenLedgerReader(cmd.Context(), c); err != nil {
		return err
	}
	if b.sum, err = trace.SumOfLedger(cmd.Context(), b.books, b.query); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", b.books.Where, err), b.close())
	}
	return nil
}

func (b *backtestLedger) close() error { return b.books.Close() }

func (b *backtestLedger) pass(ctx context.Context, what string) (backtestCalls, error) {
	b.last = trace.NewLedger(ctx, b.books, b.query, b.sum.Accounts)
	b.bar.Stage(what, b.sum.Calls)
	return ledgerPass{b.last, b.bar}, nil
}

func (b *backtestLedger) accounts(context.Context) (map[string]bool, error) {
	return maps.Collect(func(yield func(string, bool) bool) {
		for _, account := range b.sum.Accounts {
			if !yield(account, true) {
				return
			}
		}
	}), nil
}

// ledgerPass is one reading that the bar follows.
type ledgerPass struct {
	*trace.Ledger
	bar *replayBar
}

func (p ledgerPass) Next() (trace.Call, error) {
	call, err := p.Ledger.Next()
	if err == nil {
		p.bar.Add(1)
	}
	return call, err
}

func (ledgerPass) Close() error { return nil }

// complete says what a ledger cannot tell.
func (b *backtestLedger) complete(r *backtest.Report) {
	r.Sources = []string{"the ledger in " + b.books.Where}
	facts := b.last.Facts()
	say := func(calls int64, text string) {
		if calls > 0 {
			r.Assumed = append(r.Assumed, fmt.Sprintf("%d calls %s", calls, text))
		}
	}
	say(facts.HeldUnknown, "held what they used: they ended before brokers recorded what was held")
	say(facts.Expired, "ended with their lease: they are refunded then with what was charged")
	say(facts.Late, "were refunded after their lease had ended, and count as under way until then")
	say(facts.Cut, fmt.Sprintf("ended more than %s after they began, and count as ended then", trace.MaxDuration))
	r.Notes = slices.Concat(r.Notes, []string{
		"a ledger has no calls that were refused when they were made, nor any that are still under way: a policy that is more generous than the one in force would have met more",
		"amounts and costs are those that were held and charged then, also where this policy states other prices, and a limit that holds forecasts holds the caller's maximum",
	})
}
