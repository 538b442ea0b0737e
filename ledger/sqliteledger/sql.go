package sqliteledger

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

const (
	// entryColumns is how many arguments one entry takes.
	entryColumns = 7
	// entriesAtOnce is how many entries one statement writes where that many
	// wait.
	entriesAtOnce = 64
)

// The statements of an Append, and selectCharges also of a read.
const (
	insertClosing = `
INSERT INTO closings (account, reservation, month, rank, revision, late, degraded,
	minted_us, closed_at_us, posted_at_us, body, price_version, labels, outcome)
VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (account, reservation, month) DO NOTHING`

	replaceClosing = `
UPDATE closings SET rank = ?4, revision = revision + 1, late = ?5, degraded = ?6,
	minted_us = ?7, closed_at_us = ?8, posted_at_us = ?9, body = ?10, price_version = ?11, labels = ?12, outcome = ?13
WHERE account = ?1 AND reservation = ?2 AND month = ?3 AND rank < ?4`

	selectWinner = `
SELECT rank, body, outcome, late, closed_at_us FROM closings
WHERE account = ?1 AND reservation = ?2 AND month = ?3`

	selectCharges = `
SELECT e.usage_id, u.limit_id, u.scope, u.period, u.meter, sum(e.amount), max(e.sequence)
FROM entries e LEFT JOIN usage u ON u.id = e.usage_id
WHERE e.account = ?1 AND e.reservation = ?2 AND e.month = ?3
GROUP BY e.usage_id`

	insertEntry = `
INSERT INTO entries (account, reservation, month, sequence, usage_id, amount, posted_at_us)
VALUES (?, ?, ?, ?, ?, ?, ?)`

	selectRow = `SELECT used, version FROM usage WHERE id = ?1`
	insertRow = `
INSERT INTO usage (id, account, limit_id, scope, period, meter, used, version, changed_at_us, changed_in)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)`
	updateRow = `UPDATE usage SET used = ?1, version = ?2, changed_at_us = ?3, changed_in = ?4 WHERE id = ?5`

	selectNextChange = `SELECT coalesce(max(changed_in), 0) + 1 FROM usage`

	insertLabel = `INSERT INTO label_values (labels, name, value) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING`
	addToHour   = `INSERT INTO usage_hours AS kept (hour, account, labels, meter, used, held, calls)` + addSums
	addToDay    = `INSERT INTO usage_days AS kept (day, account, labels, meter, used, held, calls)` + addSums

	// addSums adds to the sums of reports. What would pass 64 bits stays at
	// their end, where SQLite would go on with a floating-point number: a sum
	// for reports must not keep a closing from being posted.
	addSums = `
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT DO UPDATE SET
	used = CASE
		WHEN excluded.used > 0 AND kept.used > 9223372036854775807 - excluded.used THEN 9223372036854775807
		WHEN excluded.used < 0 AND kept.used < -9223372036854775807 - excluded.used THEN -9223372036854775807
		ELSE kept.used + excluded.used END,
	held = CASE
		WHEN kept.held > 9223372036854775807 - excluded.held THEN 9223372036854775807
		ELSE kept.held + excluded.held END,
	calls = kept.calls + excluded.calls`
)

// statements are the prepared statements of an Append.
type statements struct {
	insertClosing, replaceClosing, selectWinner, selectCharges *sql.Stmt
	insertEntry, insertEntries                                 *sql.Stmt
	selectRow, insertRow, updateRow, selectNextChange          *sql.Stmt
	insertLabel, addToHour, addToDay                           *sql.Stmt
}

func (s *statements) prepare(ctx context.Context, db *sql.DB) error {
	several := insertEntry + strings.Repeat(", (?, ?, ?, ?, ?, ?, ?)", entriesAtOnce-1)
	for _, one := range []struct {
		into **sql.Stmt
		text string
	}{
		{&s.insertClosing, insertClosing},
		{&s.replaceClosing, replaceClosing},
		{&s.selectWinner, selectWinner},
		{&s.selectCharges, selectCharges},
		{&s.insertEntry, insertEntry},
		{&s.insertEntries, several},
		{&s.selectRow, selectRow},
		{&s.insertRow, insertRow},
		{&s.updateRow, updateRow},
		{&s.insertLabel, insertLabel},
		{&s.addToHour, addToHour},
		{&s.addToDay, addToDay},
		{&s.selectNextChange, selectNextChange},
	} {
		statement, err := db.PrepareContext(ctx, one.text)
		if err != nil {
			return err
		}
		*one.into = statement
	}
	return nil
}

func (s *statements) all() []*sql.Stmt {
	return []*sql.Stmt{
		s.insertClosing, s.replaceClosing, s.selectWinner, s.selectCharges,
		s.insertEntry, s.insertEntries, s.selectRow, s.insertRow, s.updateRow,
		s.insertLabel, s.addToHour, s.addToDay,
		s.selectNextChange,
	}
}

// in returns the same statements for use in a transaction.
func (s *statements) in(tx *sql.Tx) statements {
	return statements{
		insertClosing: tx.Stmt(s.insertClosing), replaceClosing: tx.Stmt(s.replaceClosing),
		selectWinner: tx.Stmt(s.selectWinner), selectCharges: tx.Stmt(s.selectCharges),
		insertEntry: tx.Stmt(s.insertEntry), insertEntries: tx.Stmt(s.insertEntries),
		selectRow: tx.Stmt(s.selectRow), insertRow: tx.Stmt(s.insertRow), updateRow: tx.Stmt(s.updateRow),
		insertLabel: tx.Stmt(s.insertLabel), addToHour: tx.Stmt(s.addToHour), addToDay: tx.Stmt(s.addToDay),
		selectNextChange: tx.Stmt(s.selectNextChange),
	}
}

func (s *statements) close() error {
	var errs []error
	for _, statement := range s.all() {
		if statement != nil {
			errs = append(errs, statement.Close())
		}
	}
	return errors.Join(errs...)
}
