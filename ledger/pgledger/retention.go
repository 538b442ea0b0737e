package pgledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/budgetd/budgetd/ledger"
)

// partition is a month of one of the two tables.
type partition struct {
	Month   time.Time
	Parent  string // quoted
	Name    string // quoted, with its schema where it is needed
	Pending bool   // a DETACH was interrupted
	Retired bool   // carried
}

// retire moves the oldest month that is not kept any more out of the ledger,
// unless another node is at it: its sums are carried into the usage rows, and
// its partitions are detached. A crash between any two steps leaves what the
// next call goes on with: sums are carried in the transaction that says so, and
// from then on the month takes no rows and counts no more.
func (l *Ledger) retire(ctx context.Context, now time.Time, retention time.Duration) (detached []string, more bool, err error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, false, err
	}
	defer conn.Release()
	// The lock is the session's: DETACH CONCURRENTLY can't be in a transaction.
	var mine bool
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtext('budgetd.retire'))`).Scan(&mine); err != nil || !mine {
		return nil, false, err
	}
	defer unlock(ctx, conn)
	if retention > 0 {
		if _, err := conn.Exec(ctx, keepMonths, ledger.MonthOf(now.Add(-retention))); err != nil {
			return nil, false, err
		}
	}
	rows, err := conn.Query(ctx, selectRetiring)
	if err != nil {
		return nil, false, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[partition])
	if err != nil || len(all) == 0 {
		return nil, false, err
	}
	month := all[0].Month
	tables := all
	for i := range all {
		if !all[i].Month.Equal(month) {
			tables, more = all[:i], true
			break
		}
	}
	if !tables[0].Retired {
		if err := carry(ctx, conn, tables); err != nil {
			return nil, false, err
		}
	}
	l.months.forget(month)
	for _, p := range tables {
		how := "CONCURRENTLY"
		if p.Pending {
			how = "FINALIZE"
		}
		if _, err := conn.Exec(ctx, fmt.Sprintf(`ALTER TABLE %s DETACH PARTITION %s %s`, p.Parent, p.Name, how)); err != nil {
			return detached, false, err
		}
		detached = append(detached, p.Name)
	}
	return detached, more, nil
}

func unlock(ctx context.Context, conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWithin)
	defer cancel()
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_unlock(hashtext('budgetd.retire'))`); err != nil {
		_ = conn.Conn().Close(ctx) // the lock goes with the session
	}
}

// carry adds the entries of a month to usage.carried and closes the month for
// writers, in one transaction. Tables are locked before rows, closings before
// entries and usage rows by id, as in an Append.
func carry(ctx context.Context, conn *pgxpool.Conn, tables []partition) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		// Writers of the month would queue up behind a lock that waits.
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '2s'`); err != nil {
			return err
		}
		for _, p := range tables {
			if _, err := tx.Exec(ctx, fmt.Sprintf(`CREATE TRIGGER retired BEFORE INSERT OR UPDATE ON %s
				FOR EACH ROW EXECUTE FUNCTION ledger_refuse_retired()`, p.Name)); err != nil {
				return err
			}
		}
		month := pgtype.Date{Time: tables[0].Month, Valid: true}
		var sums, rows int
		if err := tx.QueryRow(ctx, carryMonth, month).Scan(&sums, &rows); err != nil {
			return err
		}
		if sums != rows {
			return fmt.Errorf("the books are damaged: entries of %s name %d usage rows, and %d of them do not exist; see budgetd audit",
				tables[0].Month.Format("2006-01"), sums, sums-rows)
		}
		_, err := tx.Exec(ctx, `INSERT INTO retired_months (month) VALUES ($1)`, month)
		return err
	})
}

// makeMonths makes the months that will be needed, also where nobody has asked
// for one yet, and returns how many were missing.
func (l *Ledger) makeMonths(ctx context.Context, now time.Time) (made int, err error) {
	month := ledger.MonthOf(now)
	for range 1 + monthsAhead {
		if !month.Before(ledger.EndInstant) {
			break
		}
		was, err := l.months.make(ctx, l.pool, month)
		if err != nil {
			return made, err
		}
		if was {
			made++
		}
		month = nextMonth(month)
	}
	return made, nil
}
