package pgledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/internal/posting"
	"github.com/budgetd/budgetd/quota"
)

// Usage implements [ledger.Ledger].
func (l *Ledger) Usage(ctx context.Context, keys []ledger.UsageKey) ([]ledger.Usage, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.calls.Done()
	ids := make(pgtype.FlatArray[pgtype.UUID], len(keys))
	index := make(map[ledger.RowID][]int, len(keys))
	usage := make([]ledger.Usage, len(keys))
	for i, key := range keys {
		id := key.ID()
		ids[i] = uuid(id)
		index[id] = append(index[id], i)
		usage[i].UsageKey = key
	}
	rows, err := l.pool.Query(ctx, selectUsage, ids)
	if err != nil {
		return nil, wrap("read usage", err)
	}
	var (
		standby       bool
		id            pgtype.UUID
		used, version pgtype.Int8
	)
	_, err = pgx.ForEachRow(rows, []any{&standby, &id, &used, &version}, func() error {
		if standby {
			return fmt.Errorf("%w: %w", ledger.ErrUnavailable, errStandby)
		}
		if id.Valid {
			for _, at := range index[id.Bytes] {
				usage[at].Used, usage[at].Version = quota.Amount(used.Int64), version.Int64
			}
		}
		return nil
	})
	if err != nil {
		return nil, wrap("read usage", err)
	}
	return usage, nil
}

// AccountUsage implements [ledger.Ledger].
func (l *Ledger) AccountUsage(ctx context.Context, account, period string, limit int) ([]ledger.Usage, error) {
	if err := ledger.ValidateAccountUsage(account, period, limit); err != nil {
		return nil, err
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.calls.Done()
	query, arguments := selectAccountUsage, []any{account, limit}
	if period != "" {
		query, arguments = selectPeriodUsage, []any{account, period, limit}
	}
	rows, err := l.pool.Query(ctx, query, arguments...)
	if err != nil {
		return nil, wrap("read an account's usage", err)
	}
	usage, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ledger.Usage, error) {
		u := ledger.Usage{UsageKey: ledger.UsageKey{Account: account}}
		err := row.Scan(&u.Limit, &u.Scope, &u.Period, &u.Meter, &u.Used, &u.Version)
		return u, err
	})
	if err != nil {
		return nil, wrap("read an account's usage", err)
	}
	return usage, nil
}

// Closing implements [ledger.Ledger].
func (l *Ledger) Closing(ctx context.Context, account string, reservation [16]byte, minted time.Time) (ledger.Closing, error) {
	if err := ledger.ValidateClosingKey(account, minted); err != nil {
		return ledger.Closing{}, err
	}
	if err := l.enter(); err != nil {
		return ledger.Closing{}, err
	}
	defer l.calls.Done()
	k := key{account: account, reservation: reservation, month: ledger.MonthOf(minted)}
	var found []ledger.Closing
	err := inSnapshot(ctx, l.pool, func(tx pgx.Tx) (err error) {
		found, err = readClosings(ctx, tx, []*group{{key: k}})
		return err
	})
	if err != nil {
		return ledger.Closing{}, wrap("read a closing", err)
	}
	if len(found) == 0 {
		return ledger.Closing{}, ledger.ErrNotFound
	}
	return found[0], nil
}

// inSnapshot runs do in one snapshot, so that closings and lines belong
// together.
func inSnapshot(ctx context.Context, pool *pgxpool.Pool, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, do)
}

// readClosings returns the closings of the groups that are there, in order,
// with what they are charged now.
func readClosings(ctx context.Context, tx pgx.Tx, groups []*group) ([]ledger.Closing, error) {
	if len(groups) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, selectClosings, keyColumns(groups)...)
	if err != nil {
		return nil, err
	}
	var positions []int
	closings, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ledger.Closing, error) {
		var (
			c        ledger.Closing
			position int
			rank     int16
			body     pgtype.UUID
			labels   string
		)
		err := row.Scan(&position, &c.Minted, &c.ClosedAt, &rank, &body, &c.Outcome, &c.Late, &c.Degraded, &c.PriceVersion, &labels)
		if err != nil {
			return c, err
		}
		positions = append(positions, position)
		g := groups[position-1]
		c.Account, c.Reservation = g.key.account, g.key.reservation
		c.Minted, c.ClosedAt = c.Minted.UTC(), c.ClosedAt.UTC()
		c.Rank, c.Body = ledger.Rank(rank), body.Bytes
		c.Outcome = present(c.Outcome)
		c.Labels, err = posting.DecodeLabels(labels)
		return c, err
	})
	if err != nil {
		return nil, err
	}
	if rows, err = tx.Query(ctx, selectCharges, keyColumns(groups)...); err != nil {
		return nil, err
	}
	err = readCharges(rows, groups, func(g *group, charge posting.Charge, _ int, _ ledger.Usage) {
		g.reservation.Charges = append(g.reservation.Charges, charge)
	})
	for i, position := range positions {
		closings[i].Lines = groups[position-1].reservation.Lines()
	}
	return closings, err
}

// CheckSums implements [ledger.Ledger]. It reads every entry of the account.
func (l *Ledger) CheckSums(ctx context.Context, account string) ([]ledger.Mismatch, error) {
	if err := ledger.ValidateAccountUsage(account, "", 1); err != nil {
		return nil, err
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.calls.Done()
	rows, err := l.aside.Query(ctx, selectMismatches, account)
	if err != nil {
		return nil, wrap("check an account's sums", err)
	}
	mismatches, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ledger.Mismatch, error) {
		var (
			m                           ledger.Mismatch
			id                          pgtype.UUID
			limit, scope, period, meter pgtype.Text
		)
		err := row.Scan(&id, &limit, &scope, &period, &meter, &m.Used, &m.Version, &m.Entries)
		m.UsageKey = ledger.UsageKey{Account: account, Limit: limit.String, Scope: scope.String, Period: period.String, Meter: quota.Meter(meter.String)}
		if !limit.Valid {
			m.Limit = ledger.LostRow(id.Bytes)
		}
		return m, err
	})
	if err != nil {
		return nil, wrap("check an account's sums", err)
	}
	return mismatches, nil
}
