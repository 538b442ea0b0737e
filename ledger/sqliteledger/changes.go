package sqliteledger

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/budgetd/budgetd/ledger"
)

// Changes implements [ledger.Reader]. Marks are good for ever: each row knows
// the number of the transaction that changed it last, and these are in the
// order of their commits, since one transaction writes at a time.
func (l *Ledger) Changes(ctx context.Context, mark string, limit int) (ledger.ChangesPage, error) {
	if err := ledger.ValidatePage(limit); err != nil {
		return ledger.ChangesPage{}, err
	}
	m, err := parseMark(mark)
	if err != nil {
		return ledger.ChangesPage{}, err
	}
	var page ledger.ChangesPage
	err = l.inRead(ctx, "read what changed", func(tx *sql.Tx) (err error) {
		if mark == "" {
			if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(changed_in), 0) FROM usage`).Scan(&m.change); err != nil {
				return err
			}
			m.whole = true
			return nil
		}
		page, err = m.read(ctx, tx, limit)
		return err
	})
	if err != nil {
		return ledger.ChangesPage{}, err
	}
	page.Mark = m.String()
	return page, nil
}

// read returns what changed after the mark, and moves it.
func (m *changeMark) read(ctx context.Context, tx *sql.Tx, limit int) (page ledger.ChangesPage, err error) {
	after := m.after[:]
	change := m.change
	if m.whole {
		change, after = change+1, []byte{}
	}
	rows, err := tx.QueryContext(ctx, `
SELECT changed_in, id, account, limit_id, scope, period, meter, used, version FROM usage
WHERE (changed_in, id) > (?1, ?2) ORDER BY changed_in, id LIMIT ?3`, change, after, limit+1)
	if err != nil {
		return page, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if len(page.Usage) == limit {
			page.More, m.whole = true, false
			return page, nil
		}
		var u ledger.Usage
		var id []byte
		if err := rows.Scan(&m.change, &id, &u.Account, &u.Limit, &u.Scope, &u.Period, &u.Meter, &u.Used, &u.Version); err != nil {
			return page, err
		}
		copy(m.after[:], id)
		page.Usage = append(page.Usage, u)
	}
	m.whole = true // a transaction is seen as a whole or not at all
	return page, rows.Err()
}

// changeMark is where a reader of changes stands: behind a whole transaction,
// or behind one of the rows that it changed.
type changeMark struct {
	change int64
	whole  bool
	after  ledger.RowID
}

func (m changeMark) String() string {
	if m.whole {
		return strconv.FormatInt(m.change, 10)
	}
	return fmt.Sprintf("%d/%x", m.change, m.after[:])
}

var errBadMark = fmt.Errorf("%w: mark: is none that Changes gave; start with the empty one", ledger.ErrInvalid)

func parseMark(text string) (m changeMark, err error) {
	if text == "" {
		return m, nil
	}
	number, id, inside := strings.Cut(text, "/")
	m.change, err = strconv.ParseInt(number, 10, 64)
	m.whole = !inside
	if err != nil || m.change < 0 {
		return m, errBadMark
	}
	if inside {
		raw, err := hex.DecodeString(id)
		if err != nil || len(raw) != len(m.after) {
			return m, errBadMark
		}
		copy(m.after[:], raw)
	}
	return m, nil
}
