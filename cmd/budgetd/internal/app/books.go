package app

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/pgledger"
	"github.com/budgetd/budgetd/ledger/spool"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
)

// spoolFile is the spool in the data directory.
const spoolFile = "spool.db"

// books are the ledger as the broker uses it.
type books struct {
	ledger ledger.Ledger
	poster ledger.Appender // the same, without the spool
	spool  *spool.Spool    // nil with the embedded database, which is on this disk itself
	// now is the clock by which tables are maintained: that of the server where
	// the ledger is on one, as months that have left do not come back.
	now func(context.Context) (time.Time, error)
}

// openLedger opens the ledger: an engine, behind a group commit, and behind a
// spool where the engine is on a network.
func (a *App) openLedger(ctx context.Context, stores *Stores, clock func() time.Time) (books, error) {
	var engine ledger.Ledger
	var err error
	parallel := ledger.DefaultParallel
	now := func(context.Context) (time.Time, error) { return clock(), nil }
	if stores.pool != nil {
		var served *pgledger.Ledger
		if served, err = pgledger.New(ctx, pgledger.Pools{Main: stores.pool, Aside: stores.aside}, clock()); err == nil {
			engine, now = served, served.Now
		}
	} else {
		parallel = 1 // as SQLite
		engine, err = sqliteledger.Open(ctx, sqliteledger.Config{Path: stores.path, BusyTimeout: busyTimeout})
	}
	if err != nil {
		return books{}, fmt.Errorf("%s: %w", stores.Where, err)
	}
	a.opened("the ledger", engine.Close)
	committer, err := ledger.NewGroupCommitter(engine, ledger.GroupConfig{MaxQueue: a.config.LedgerQueue, Parallel: parallel, Metrics: a.registry})
	if err != nil {
		return books{}, err
	}
	a.opened("the group commit", committer.Close)
	b := books{ledger: grouped{engine, committer}, poster: committer, now: now}
	if stores.pool == nil {
		return b, nil
	}
	b.spool, err = spool.Open(ctx, spool.Config{
		Next: b.ledger, Path: filepath.Join(a.config.Data, spoolFile), MaxBytes: int64(a.config.SpoolMaxBytes),
		Drained: func(drained []ledger.Drained) { a.broker.Drained(drained) }, // nothing drains before there is a broker
		Now:     clock, Metrics: a.registry, Logger: a.log,
	})
	if err != nil {
		return books{}, fmt.Errorf("data: %w", err)
	}
	a.opened("the spool", b.spool.Close)
	b.ledger = b.spool
	return b, nil
}

// drain posts what an earlier process has left in the spool, for as long as a
// start may take; the rest is drained while the broker serves.
func (b books) drain(ctx context.Context, log *slog.Logger) {
	if b.spool == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := b.spool.Drain(ctx); err != nil {
		log.Warn("the spool is not drained yet", "closings", b.spool.Waiting(), "error", err)
	}
}

// grouped is a ledger whose Appends are gathered into few transactions.
type grouped struct {
	ledger.Ledger
	appender ledger.Appender
}

func (g grouped) Append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	return g.appender.Append(ctx, closings)
}
