package pgledger

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/budgetd/budgetd/ledger"
)

// monthsAhead is how many months after a month that is in use have partitions
// before anybody needs them.
const monthsAhead = 2

// makeAheadWithin bounds the making of partitions ahead of time.
const makeAheadWithin = 30 * time.Second

// months knows which months have partitions. It may know too few, never too
// many unless somebody drops a partition; Append then finds out and asks anew.
type months struct {
	mu    sync.Mutex
	known map[time.Time]bool
	ahead bool // a goroutine makes months ahead
}

// load replaces what is known by what the database has.
func (m *months) load(ctx context.Context, pool *pgxpool.Pool) error {
	rows, err := pool.Query(ctx, selectMonths)
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return err
	}
	known := make(map[time.Time]bool, len(found))
	for _, month := range found {
		known[month.UTC()] = true
	}
	m.mu.Lock()
	m.known = known
	m.mu.Unlock()
	return nil
}

func (m *months) has(month time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known[month]
}

// make makes the partitions of the month unless they are known to exist, and
// says whether they were missing.
func (m *months) make(ctx context.Context, pool *pgxpool.Pool, month time.Time) (made bool, err error) {
	if m.has(month) {
		return false, nil
	}
	if err := pool.QueryRow(ctx, `SELECT ledger_make_month($1)`, month).Scan(&made); err != nil {
		return false, err
	}
	m.mu.Lock()
	m.known[month] = true
	m.mu.Unlock()
	return made, nil
}

// forget forgets a month that is about to be detached.
func (m *months) forget(month time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, month)
}

// ensure makes the partitions of every month of the closings that are missing.
func (m *months) ensure(ctx context.Context, pool *pgxpool.Pool, closings []ledger.Closing) error {
	var last time.Time
	for i := range closings {
		month := ledger.MonthOf(closings[i].Minted)
		if month.Equal(last) {
			continue
		}
		if _, err := m.make(ctx, pool, month); err != nil {
			return err
		}
		last = month
	}
	return nil
}

// makeAhead makes the months after the given one in the background, one
// goroutine at a time. It fails silently: what is missing in the end is made
// by the Append that needs it, whose caller hears of a failure.
func (l *Ledger) makeAhead(month time.Time) {
	last := month
	for range monthsAhead {
		last = nextMonth(last)
	}
	l.months.mu.Lock()
	start := !l.months.ahead && !l.months.known[last] && last.Before(ledger.EndInstant)
	if start {
		l.months.ahead = true
	}
	l.months.mu.Unlock()
	if !start {
		return
	}
	l.calls.Add(1) // the caller is a call under way, so Close is not past its Wait
	go func() {
		defer l.calls.Done()
		ctx, cancel := context.WithTimeout(context.Background(), makeAheadWithin)
		defer cancel()
		for next := nextMonth(month); !next.After(last); next = nextMonth(next) {
			if _, err := l.months.make(ctx, l.pool, next); err != nil {
				break
			}
		}
		l.months.mu.Lock()
		l.months.ahead = false
		l.months.mu.Unlock()
	}()
}

func nextMonth(month time.Time) time.Time { return month.AddDate(0, 1, 0) }
