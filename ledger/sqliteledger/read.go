package sqliteledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// inRead runs do on one snapshot of the file.
func (l *Ledger) inRead(ctx context.Context, doing string, do func(*sql.Tx) error) error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.calls.Done()
	tx, err := l.read.BeginTx(ctx, nil)
	if err != nil {
		return wrap(doing, err)
	}
	return wrap(doing, errors.Join(do(tx), rolledBack(tx)))
}

// Usage implements [ledger.Ledger].
func (l *Ledger) Usage(ctx context.Context, keys []ledger.UsageKey) ([]ledger.Usage, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	usage := make([]ledger.Usage, len(keys))
	err := l.inRead(ctx, "read usage", func(tx *sql.Tx) error {
		statement, err := tx.PrepareContext(ctx, selectRow)
		if err != nil {
			return err
		}
		defer statement.Close()
		for i, key := range keys {
			usage[i].UsageKey = key
			id := key.ID()
			err := statement.QueryRowContext(ctx, id[:]).Scan(&usage[i].Used, &usage[i].Version)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return usage, nil
}

// AccountUsage implements [ledger.Ledger].
func (l *Ledger) AccountUsage(ctx context.Context, account, period string, limit int) ([]ledger.Usage, error) {
	if err := ledger.ValidateAccountUsage(account, period, limit); err != nil {
		return nil, err
	}
	usage := []ledger.Usage{}
	err := l.inRead(ctx, "read an account's usage", func(tx *sql.Tx) (err error) {
		const columns = `SELECT limit_id, scope, period, meter, used, version FROM usage `
		query, arguments := columns+`WHERE account = ? ORDER BY limit_id, scope, meter, period LIMIT ?`, []any{account, limit}
		if period != "" { // in the order of the index: no more is read than returned
			query, arguments = columns+`WHERE account = ? AND period = ? ORDER BY limit_id, scope, meter LIMIT ?`, []any{account, period, limit}
		}
		rows, err := tx.QueryContext(ctx, query, arguments...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			row := ledger.Usage{UsageKey: ledger.UsageKey{Account: account}}
			if err := rows.Scan(&row.Limit, &row.Scope, &row.Period, &row.Meter, &row.Used, &row.Version); err != nil {
				return err
			}
			usage = append(usage, row)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	return usage, nil
}

// Closing implements [ledger.Ledger].
func (l *Ledger) Closing(ctx context.Context, account string, reservation [16]byte, minted time.Time) (ledger.Closing, error) {
	if err := ledger.ValidateClosingKey(account, minted); err != nil {
		return ledger.Closing{}, err
	}
	var c ledger.Closing
	err := l.inRead(ctx, "read a closing", func(tx *sql.Tx) (err error) {
		c, err = readClosing(ctx, tx, keyOf(account, reservation, minted))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return ledger.Closing{}, ledger.ErrNotFound
	}
	if err != nil {
		return ledger.Closing{}, err
	}
	return c, nil
}

// CheckSums implements [ledger.Ledger]. It reads every entry of the account.
func (l *Ledger) CheckSums(ctx context.Context, account string) ([]ledger.Mismatch, error) {
	if err := ledger.ValidateAccountUsage(account, "", 1); err != nil {
		return nil, err
	}
	var mismatches []ledger.Mismatch
	err := l.inRead(ctx, "check an account's sums", func(tx *sql.Tx) (err error) {
		// Not as one FULL JOIN: SQLite compares each row with each for that.
		rows, err := tx.QueryContext(ctx, `
WITH sums AS MATERIALIZED (SELECT usage_id, sum(amount) AS amount FROM entries WHERE account = ?1 GROUP BY usage_id)
SELECT u.id, u.limit_id AS limit_id, u.scope AS scope, u.period AS period, u.meter AS meter, u.used, u.version, coalesce(e.amount, 0)
FROM usage u LEFT JOIN sums e ON e.usage_id = u.id
WHERE u.account = ?1 AND u.used <> coalesce(e.amount, 0)
UNION ALL
SELECT e.usage_id, NULL, NULL, NULL, NULL, 0, 0, e.amount
FROM sums e WHERE NOT EXISTS (SELECT 1 FROM usage u WHERE u.id = e.usage_id AND u.account = ?1)
ORDER BY limit_id NULLS LAST, scope, meter, period`, account)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			var (
				m                           ledger.Mismatch
				id                          []byte
				limit, scope, period, meter sql.NullString
			)
			if err := rows.Scan(&id, &limit, &scope, &period, &meter, &m.Used, &m.Version, &m.Entries); err != nil {
				return err
			}
			m.UsageKey = ledger.UsageKey{Account: account, Limit: limit.String, Scope: scope.String, Period: period.String, Meter: quota.Meter(meter.String)}
			if !limit.Valid {
				m.Limit = ledger.LostRow(ledger.RowID(id))
			}
			mismatches = append(mismatches, m)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	return mismatches, nil
}
