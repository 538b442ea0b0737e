package sqliteledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/internal/cursor"
	"github.com/budgetd/budgetd/ledger/internal/posting"
)

// scanAtOnce is how many closings one call of Closings looks at, at most: some
// tens of milliseconds.
const scanAtOnce = ledger.MaxPage

const (
	scanClosings = `
SELECT account, reservation, month, minted_us, labels FROM closings
WHERE (account, reservation, month) > (?1, ?2, ?3)
ORDER BY account, reservation, month LIMIT ?4`

	scanAccountClosings = `
SELECT account, reservation, month, minted_us, labels FROM closings
WHERE account = ?1 AND (reservation, month) > (?2, ?3)
ORDER BY reservation, month LIMIT ?4`
)

// Closings implements [ledger.Reader]. It walks through the primary key, in
// steps that are bounded whatever closings they meet.
func (l *Ledger) Closings(ctx context.Context, q ledger.ClosingsQuery) (ledger.ClosingsPage, error) {
	if err := q.Validate(); err != nil {
		return ledger.ClosingsPage{}, err
	}
	after, err := cursor.ParseClosing(q.After)
	if err != nil {
		return ledger.ClosingsPage{}, err
	}
	var page ledger.ClosingsPage
	err = l.inRead(ctx, "read closings", func(tx *sql.Tx) error {
		found, end, err := scan(ctx, tx, &q, keyOf(after.Account, after.Reservation, after.Month))
		if err != nil {
			return err
		}
		for _, k := range found {
			c, err := readClosing(ctx, tx, k)
			if err != nil {
				return err
			}
			page.Closings = append(page.Closings, c)
		}
		if end != nil {
			page.Next = cursor.Closing{Month: monthOf(end.month), Account: end.account, Reservation: end.reservation}.String()
		}
		return nil
	})
	if err != nil {
		return ledger.ClosingsPage{}, err
	}
	return page, nil
}

// scan returns the keys of closings of the query behind a position, and the
// last one that it looked at, nil when there are no more.
func scan(ctx context.Context, tx *sql.Tx, q *ledger.ClosingsQuery, at key) (found []key, end *key, err error) {
	statement, account := scanClosings, at.account
	if q.Account != "" {
		statement, account = scanAccountClosings, q.Account
	}
	from, to := q.From.UnixMicro(), q.To.UnixMicro()
	rows, err := tx.QueryContext(ctx, statement, account, at.reservation[:], at.month, scanAtOnce+1)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for looked := 0; rows.Next(); looked++ {
		if looked == scanAtOnce || len(found) == q.Limit {
			return found, &at, nil
		}
		var reservation []byte
		var minted int64
		var text string
		if err := rows.Scan(&at.account, &reservation, &at.month, &minted, &text); err != nil {
			return nil, nil, err
		}
		copy(at.reservation[:], reservation)
		if minted < from || minted >= to {
			continue
		}
		labels, err := posting.DecodeLabels(text)
		if err != nil {
			return nil, nil, err
		}
		if has(labels, q.Labels) {
			found = append(found, at)
		}
	}
	return found, nil, rows.Err()
}

func has(labels, wanted map[string]string) bool {
	for name, value := range wanted {
		if got, stated := labels[name]; !stated || got != value {
			return false
		}
	}
	return true
}

// monthOf returns the first instant of a month as the tables have it.
func monthOf(month int) time.Time {
	return time.Date(month/100, time.Month(month%100), 1, 0, 0, 0, 0, time.UTC)
}

// readClosing returns a closing with what it is charged now, or sql.ErrNoRows.
func readClosing(ctx context.Context, tx *sql.Tx, k key) (ledger.Closing, error) {
	c := ledger.Closing{Account: k.account, Reservation: k.reservation}
	var (
		minted, closedAt int64
		body             []byte
		labels           string
	)
	err := tx.QueryRowContext(ctx, `
SELECT minted_us, closed_at_us, rank, body, outcome, late, degraded, price_version, labels FROM closings
WHERE account = ?1 AND reservation = ?2 AND month = ?3`, k.account, k.reservation[:], k.month).Scan(
		&minted, &closedAt, &c.Rank, &body, &c.Outcome, &c.Late, &c.Degraded, &c.PriceVersion, &labels)
	if err != nil {
		return c, err
	}
	c.Minted, c.ClosedAt = time.UnixMicro(minted).UTC(), time.UnixMicro(closedAt).UTC()
	copy(c.Body[:], body)
	c.Outcome = present(c.Outcome)
	if c.Labels, err = posting.DecodeLabels(labels); err != nil {
		return c, err
	}
	rows, err := tx.QueryContext(ctx, selectCharges, k.account, k.reservation[:], k.month)
	if err != nil {
		return c, err
	}
	charged, err := readCharges(k.account, rows)
	c.Lines = charged.Lines()
	return c, err
}
