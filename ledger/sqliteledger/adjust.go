package sqliteledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

const (
	insertAdjustment = `
INSERT INTO adjustments (id, body, account, limit_id, scope, period, meter, amount, at_us, made_by, reason, posted_at_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (id) DO NOTHING`

	selectAdjustment = `SELECT body, account, limit_id, scope, period, meter FROM adjustments WHERE id = ?1`

	selectAdjustments = `
SELECT id, body, limit_id, scope, period, meter, amount, at_us, made_by, reason FROM adjustments
WHERE account = ?1 AND (at_us, id) < (?2, ?3)
ORDER BY at_us DESC, id DESC LIMIT ?4`

	// An id that a reservation has keeps its entries to itself.
	insertOnlyEntry = insertEntry + `
ON CONFLICT (account, reservation, month, sequence) DO NOTHING`
)

// Adjust implements [ledger.Adjuster].
func (l *Ledger) Adjust(ctx context.Context, a ledger.Adjustment) (ledger.Usage, bool, error) {
	if err := a.Validate(); err != nil {
		return ledger.Usage{}, false, err
	}
	var usage ledger.Usage
	var posted bool
	err := l.inWrite(ctx, "post an adjustment", func(w *appending) (err error) {
		usage, posted, err = w.adjust(&a)
		return err
	})
	if err != nil {
		return ledger.Usage{}, false, err
	}
	return usage, posted, nil
}

func (w *appending) adjust(a *ledger.Adjustment) (ledger.Usage, bool, error) {
	k := a.Key
	inserted, err := w.changed(insertAdjustment, a.ID[:], a.Body[:], k.Account, k.Limit, k.Scope, k.Period, string(k.Meter),
		int64(a.Amount), a.At.UnixMicro(), a.By, a.Reason, w.now)
	if err != nil {
		return ledger.Usage{}, false, err
	}
	if !inserted {
		usage, err := w.adjustedBefore(a)
		return usage, false, err
	}
	hour, err := w.deltas.In(k.Account, a.At, nil)
	if err == nil {
		err = hour.Post(k, a.Amount)
	}
	if err != nil {
		return ledger.Usage{}, false, err
	}
	row, err := w.rows.Change(k, a.Amount)
	if err != nil {
		return ledger.Usage{}, false, err
	}
	month := keyOf(k.Account, a.ID, a.At).month
	inserted, err = w.changed(insertOnlyEntry, k.Account, a.ID[:], month, 1, row.ID[:], int64(a.Amount), w.now)
	if err == nil && !inserted {
		err = fmt.Errorf("the id is that of a reservation: %w", ledger.ErrReused)
	}
	if err == nil {
		err = w.writeSums()
	}
	if err == nil && a.Floor && w.rows.Changed()[0].Used < 0 {
		err = ledger.ErrBelowZero
	}
	if err != nil {
		return ledger.Usage{}, false, err
	}
	return w.rows.Changed()[0], true, nil
}

// changed executes a statement and says whether it wrote its row.
func (w *appending) changed(statement string, arguments ...any) (bool, error) {
	result, err := w.tx.ExecContext(w.ctx, statement, arguments...)
	if err != nil {
		return false, err
	}
	rows, err := result.RowsAffected()
	return rows == 1, err
}

// adjustedBefore returns the row of the adjustment that has the id, as it is
// now.
func (w *appending) adjustedBefore(a *ledger.Adjustment) (ledger.Usage, error) {
	var body []byte
	var usage ledger.Usage
	err := w.tx.QueryRowContext(w.ctx, selectAdjustment, a.ID[:]).
		Scan(&body, &usage.Account, &usage.Limit, &usage.Scope, &usage.Period, &usage.Meter)
	if err != nil {
		return ledger.Usage{}, err
	}
	if [16]byte(body) != a.Body {
		return ledger.Usage{}, ledger.ErrReused
	}
	id := usage.ID()
	err = w.use.selectRow.QueryRowContext(w.ctx, id[:]).Scan(&usage.Used, &usage.Version)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil // the books are damaged, which CheckSums tells
	}
	return usage, err
}

// Adjustments implements [ledger.Adjuster].
func (l *Ledger) Adjustments(ctx context.Context, account string, before *ledger.Adjustment, limit int) ([]ledger.Adjustment, error) {
	if err := ledger.ValidateAdjustments(account, before, limit); err != nil {
		return nil, err
	}
	at, id := int64(math.MaxInt64), []byte{}
	if before != nil {
		at, id = before.At.UnixMicro(), before.ID[:]
	}
	var found []ledger.Adjustment
	err := l.inRead(ctx, "read adjustments", func(tx *sql.Tx) (err error) {
		rows, err := tx.QueryContext(ctx, selectAdjustments, account, at, id, limit)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			a := ledger.Adjustment{Key: ledger.UsageKey{Account: account}}
			var id, body []byte
			var amount, at int64
			if err := rows.Scan(&id, &body, &a.Key.Limit, &a.Key.Scope, &a.Key.Period, &a.Key.Meter, &amount, &at, &a.By, &a.Reason); err != nil {
				return err
			}
			a.ID, a.Body, a.Amount, a.At = [16]byte(id), [16]byte(body), quota.Amount(amount), time.UnixMicro(at).UTC()
			found = append(found, a)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
