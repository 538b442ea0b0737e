package pgledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/internal/posting"
	"github.com/budgetd/budgetd/quota"
)

// inWrite runs do in a transaction like that of an Append.
func inWrite(ctx context.Context, pool *pgxpool.Pool, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, do)
}

// Adjust implements [ledger.Adjuster].
func (l *Ledger) Adjust(ctx context.Context, a ledger.Adjustment) (ledger.Usage, bool, error) {
	if err := a.Validate(); err != nil {
		return ledger.Usage{}, false, err
	}
	if err := l.enter(); err != nil {
		return ledger.Usage{}, false, err
	}
	defer l.calls.Done()
	const doing = "post an adjustment"
	month := ledger.MonthOf(a.At)
	if _, err := l.months.make(ctx, l.pool, month); err != nil {
		return ledger.Usage{}, false, wrap(doing, err)
	}
	var usage ledger.Usage
	var posted bool
	write := func() error {
		e := extra{}
		err := inWrite(ctx, l.pool, func(tx pgx.Tx) (err error) {
			usage, posted, err = e.adjust(ctx, tx, &l.labels, &a)
			return err
		})
		if err == nil {
			l.labels.learn(e.deltas.LabelSets())
		}
		return err
	}
	err := write()
	if isMissingPartition(err) {
		// Somebody dropped or detached the partition since we looked.
		if err = l.months.load(ctx, l.pool); err == nil {
			_, err = l.months.make(ctx, l.pool, month)
		}
		if err == nil {
			err = write()
		}
	}
	if isConflict(err) {
		err = fmt.Errorf("the id is that of a reservation: %w", ledger.ErrReused)
	}
	if err != nil {
		return ledger.Usage{}, false, wrap(doing, err)
	}
	return usage, posted, nil
}

func (e *extra) adjust(ctx context.Context, tx pgx.Tx, labels *labelSets, a *ledger.Adjustment) (ledger.Usage, bool, error) {
	k := a.Key
	tag, err := tx.Exec(ctx, insertAdjustment, uuid(a.ID), uuid(a.Body), k.Account, k.Limit, k.Scope, k.Period, string(k.Meter),
		int64(a.Amount), ledger.Instant(a.At), a.By, a.Reason)
	if err != nil {
		return ledger.Usage{}, false, err
	}
	if tag.RowsAffected() == 0 {
		usage, err := adjustedBefore(ctx, tx, a)
		return usage, false, err
	}
	hour, err := e.deltas.In(k.Account, a.At, nil)
	if err == nil {
		err = hour.Post(k, a.Amount)
	}
	if err != nil {
		return ledger.Usage{}, false, err
	}
	row, err := e.rows.Change(k, a.Amount)
	if err != nil {
		return ledger.Usage{}, false, err
	}
	month := ledger.MonthOf(a.At)
	e.entries.of(month).add(&key{account: k.Account, reservation: a.ID, month: month}, posting.Entry{Sequence: 1, Row: row.ID, Amount: a.Amount})
	if err := e.write(ctx, tx, labels, pgtype.UUID{}); err != nil {
		return ledger.Usage{}, false, err
	}
	// The row is locked from its change to the commit.
	if a.Floor && e.rows.Changed()[0].Used < 0 {
		return ledger.Usage{}, false, ledger.ErrBelowZero
	}
	return e.rows.Changed()[0], true, nil
}

// adjustedBefore returns the row of the adjustment that has the id, as it is
// now.
func adjustedBefore(ctx context.Context, tx pgx.Tx, a *ledger.Adjustment) (ledger.Usage, error) {
	var body pgtype.UUID
	var usage ledger.Usage
	err := tx.QueryRow(ctx, selectAdjustment, uuid(a.ID)).
		Scan(&body, &usage.Account, &usage.Limit, &usage.Scope, &usage.Period, &usage.Meter)
	if err != nil {
		return ledger.Usage{}, err
	}
	if body.Bytes != a.Body {
		return ledger.Usage{}, ledger.ErrReused
	}
	id := usage.ID()
	var standby bool
	var row pgtype.UUID
	err = tx.QueryRow(ctx, selectUsage, pgtype.FlatArray[pgtype.UUID]{uuid(id)}).Scan(&standby, &row, &usage.Used, &usage.Version)
	return usage, err
}

// extra is what a transaction posts that is no Append.
type extra struct {
	entries monthEntries
	deltas  posting.Deltas
	rows    posting.Rows
}

// write writes the entries, naming the correction if there is one, the deltas
// and the usage rows.
func (e *extra) write(ctx context.Context, tx pgx.Tx, labels *labelSets, correction pgtype.UUID) error {
	batch := &pgx.Batch{}
	plain := 0 // statements in front that return nothing
	for _, columns := range e.entries.months {
		batch.Queue(insertCorrectedEntries, append(columns.arguments(), correction)...)
		plain++
	}
	plain += labels.queueDeltas(batch, &e.deltas)
	var usage usageColumns
	var changed pgtype.FlatArray[pgtype.UUID]
	for _, row := range e.rows.InOrder() {
		usage.add(row)
		if row.Difference != 0 {
			changed = append(changed, uuid(row.ID))
		}
	}
	batch.Queue(insertChanges, changed)
	plain++
	batch.Queue(upsertUsage, usage.arguments()...) // last, as in an Append
	results := tx.SendBatch(ctx, batch)
	defer results.Close()
	for range plain {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	if err := readUsage(results, &e.rows, false); err != nil {
		return err
	}
	return results.Close()
}

// Adjustments implements [ledger.Adjuster].
func (l *Ledger) Adjustments(ctx context.Context, account string, before *ledger.Adjustment, limit int) ([]ledger.Adjustment, error) {
	if err := ledger.ValidateAdjustments(account, before, limit); err != nil {
		return nil, err
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.calls.Done()
	var at pgtype.Timestamptz
	var id pgtype.UUID
	if before != nil {
		at, id = pgtype.Timestamptz{Time: ledger.Instant(before.At), Valid: true}, uuid(before.ID)
	}
	rows, err := l.pool.Query(ctx, selectAdjustments, account, at, id, limit)
	if err != nil {
		return nil, wrap("read adjustments", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ledger.Adjustment, error) {
		a := ledger.Adjustment{Key: ledger.UsageKey{Account: account}}
		var id, body pgtype.UUID
		var amount int64
		err := row.Scan(&id, &body, &a.Key.Limit, &a.Key.Scope, &a.Key.Period, &a.Key.Meter, &amount, &a.At, &a.By, &a.Reason)
		a.ID, a.Body, a.Amount, a.At = id.Bytes, body.Bytes, quota.Amount(amount), a.At.UTC()
		return a, err
	})
	if err != nil {
		return nil, wrap("read adjustments", err)
	}
	return found, nil
}
