package pgledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/budgetd/budgetd/ledger"
)

// Ledger is the engine on PostgreSQL. It is safe for concurrent use.
type Ledger struct {
	pool    *pgxpool.Pool
	aside   *pgxpool.Pool // see Pools
	months  months
	labels  labelSets
	careful atomic.Int64 // Appends that will not bet on new closings

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // Appends under way, and partitions being made
}

var _ ledger.Ledger = (*Ledger)(nil)

// Pools are the connections of a ledger, all to one database. They stay the
// caller's, who closes them after the ledger.
type Pools struct {
	// Main is what closings are appended on.
	Main *pgxpool.Pool
	// Aside is what takes seconds: reports, walks through closings, sums of
	// entries and repricing. However many of them there are, closings do not
	// wait for their connections. nil: Main.
	Aside *pgxpool.Pool
}

// New returns a ledger in the database that the pools lead to, which must be a
// primary with the schema of package migrations. It makes the partitions of
// this month and the next two if they are missing. now is the instant whose
// month that is.
//
// An Append is only as durable as the sessions of pools.Main say: New refuses a
// database in which synchronous_commit is off for them.
func New(ctx context.Context, pools Pools, now time.Time) (*Ledger, error) {
	pool := pools.Main
	l := &Ledger{pool: pool, aside: pools.Aside}
	if l.aside == nil {
		l.aside = pool
	}
	var standby, waitsForDisk bool
	err := pool.QueryRow(ctx, `SELECT pg_is_in_recovery(), current_setting('synchronous_commit') <> 'off'`).
		Scan(&standby, &waitsForDisk)
	switch {
	case err != nil:
		return nil, wrap("open the ledger", err)
	case standby:
		return nil, fmt.Errorf("%w: open the ledger: %w", ledger.ErrUnavailable, errStandby)
	case !waitsForDisk:
		return nil, errors.New("open the ledger: synchronous_commit is off, so a crash of PostgreSQL would lose acknowledged closings; set it to on for this role")
	}
	if err := l.months.load(ctx, pool); err != nil {
		return nil, wrap("open the ledger", err)
	}
	if _, err := l.makeMonths(ctx, now); err != nil {
		return nil, wrap("open the ledger", err)
	}
	return l, nil
}

// NewReader returns what answers questions about the ledger in the database that
// the pool leads to, and writes nothing. The pool stays the caller's.
func NewReader(pool *pgxpool.Pool) ledger.Reader { return &Ledger{pool: pool, aside: pool} }

// enter counts a call in, unless the ledger is closed. The caller calls
// l.calls.Done.
func (l *Ledger) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ledger.ErrClosed
	}
	l.calls.Add(1)
	return nil
}

// Ping answers nil when the server is a primary that has the tables.
func (l *Ledger) Ping(ctx context.Context) error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.calls.Done()
	var standby bool
	err := l.pool.QueryRow(ctx, `SELECT pg_is_in_recovery()
		WHERE 'closings'::regclass IS NOT NULL AND 'entries'::regclass IS NOT NULL AND 'usage'::regclass IS NOT NULL`).Scan(&standby)
	if err != nil {
		return wrap("ping the ledger", err)
	}
	if standby {
		return fmt.Errorf("%w: ping the ledger: %w", ledger.ErrUnavailable, errStandby)
	}
	return nil
}

// Close waits for the calls under way and refuses those that come later with
// ledger.ErrClosed. The pools stay open.
func (l *Ledger) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.calls.Wait()
	return nil
}
