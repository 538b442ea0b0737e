package sqliteledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/internal/posting"
	"github.com/budgetd/budgetd/quota"
)

// Append implements [ledger.Appender]. The context bounds the wait for the
// write lock; a transaction that has begun goes on to its end, which takes
// milliseconds.
func (l *Ledger) Append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	if err := ledger.ValidateAll(closings); err != nil {
		return nil, err
	}
	if len(closings) == 0 {
		return nil, nil
	}
	var verdicts []ledger.Verdict
	err := l.inWrite(ctx, fmt.Sprintf("append %d closings", len(closings)), func(a *appending) (err error) {
		a.closings = closings
		verdicts, err = a.run()
		return err
	})
	if err != nil {
		return nil, err
	}
	return verdicts, nil
}

// inWrite runs do in a transaction that writes, and commits it.
func (l *Ledger) inWrite(ctx context.Context, doing string, do func(*appending) error) error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.calls.Done()
	tx, done, err := l.begin(ctx)
	if err != nil {
		return wrap(doing, err)
	}
	defer done()
	a := &appending{
		ctx:    context.WithoutCancel(ctx),
		tx:     tx,
		use:    l.statements.in(tx),
		now:    time.Now().UnixMicro(),
		labels: &l.labels,
		known:  make(map[key]*reservation),
	}
	if err := do(a); err != nil {
		return wrap(doing, errors.Join(err, tx.Rollback()))
	}
	if err := tx.Commit(); err != nil {
		return wrap(doing, errors.Join(err, rolledBack(tx)))
	}
	l.labels.learn(a.deltas.LabelSets())
	return nil
}

// rolledBack ends a transaction whose COMMIT failed.
func rolledBack(tx *sql.Tx) error {
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

// begin waits for the write lock, of this process and then of the file. The
// caller ends the transaction, then calls done.
func (l *Ledger) begin(ctx context.Context) (_ *sql.Tx, done func(), _ error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err // also where the turn is free
	}
	select {
	case <-l.turn:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	done = func() { l.turn <- struct{}{} }
	start := time.Now()
	for {
		tx, err := l.write.BeginTx(context.WithoutCancel(ctx), nil)
		if err == nil {
			return tx, done, nil
		}
		if ctx.Err() != nil {
			err = errors.Join(ctx.Err(), err)
		} else if code(err) == sqlite3.SQLITE_BUSY && time.Since(start) < l.busy {
			continue // SQLite has waited for busyStep
		}
		done()
		return nil, nil, err
	}
}

// key is the primary key of a closing.
type key struct {
	account     string
	reservation [16]byte
	month       int // as 202611
}

func keyOf(account string, reservation [16]byte, minted time.Time) key {
	year, month, _ := minted.UTC().Date()
	return key{account: account, reservation: reservation, month: year*100 + int(month)}
}

// reservation is what the ledger holds for one reservation in the course of an
// Append.
type reservation struct {
	winner ledger.Verdict
	posted posting.Reservation
	read   bool // posted has the entries of before this Append
}

// appending is one Append under way, or another transaction that writes.
type appending struct {
	ctx      context.Context
	tx       *sql.Tx
	use      statements
	now      int64 // microseconds
	change   int64 // the number of this transaction; 0 until it changes a usage row
	closings []ledger.Closing

	known   map[key]*reservation
	rows    posting.Rows
	deltas  posting.Deltas
	labels  *labelSets
	entries []any // arguments of entries not yet written
}

func (a *appending) run() ([]ledger.Verdict, error) {
	verdicts := make([]ledger.Verdict, len(a.closings))
	owners := make([]*reservation, len(a.closings))
	for i := range a.closings {
		c := &a.closings[i]
		r, posted, err := a.settle(c)
		if err != nil {
			return nil, err
		}
		owners[i] = r
		verdicts[i] = r.winner
		verdicts[i].Posted = posted
	}
	if err := a.writeEntries(0); err != nil {
		return nil, err
	}
	if err := a.writeSums(); err != nil {
		return nil, err
	}
	for i, r := range owners {
		verdicts[i].Usage = r.posted.Usage(&a.rows)
	}
	return verdicts, nil
}

// settle writes the closing if its rank is higher than what stands, and says
// whether it did.
func (a *appending) settle(c *ledger.Closing) (*reservation, bool, error) {
	k := keyOf(c.Account, c.Reservation, c.Minted)
	r, known := a.known[k]
	if !known {
		r = &reservation{}
		a.known[k] = r
		inserted, err := a.insert(k, c)
		if err != nil {
			return nil, false, err
		}
		if inserted {
			r.read = true // there was nothing
			return r, true, a.post(k, r, c)
		}
		if r.winner, err = a.winner(k); err != nil {
			return nil, false, err
		}
	}
	if !r.read {
		if err := a.readCharges(k, r); err != nil {
			return nil, false, err
		}
		r.read = true
	}
	if c.Rank <= r.winner.Rank {
		return r, false, nil
	}
	if err := a.replace(k, c); err != nil {
		return nil, false, err
	}
	return r, true, a.post(k, r, c)
}

func (a *appending) post(k key, r *reservation, c *ledger.Closing) error {
	r.winner = ledger.VerdictOf(c)
	err := r.posted.Post(c, &a.rows, &a.deltas, func(e posting.Entry) {
		id := e.Row // a copy, which the arguments below keep
		a.entries = append(a.entries, k.account, c.Reservation[:], k.month, e.Sequence, id[:], int64(e.Amount), a.now)
	})
	if err != nil {
		return err
	}
	return a.writeEntries(entriesAtOnce)
}

// writeEntries writes entries until fewer than atLeast wait; with 0 all.
func (a *appending) writeEntries(atLeast int) error {
	for waiting := len(a.entries) / entryColumns; waiting > 0 && waiting >= atLeast; waiting = len(a.entries) / entryColumns {
		statement, rows := a.use.insertEntry, 1
		if waiting >= entriesAtOnce {
			statement, rows = a.use.insertEntries, entriesAtOnce
		}
		if _, err := statement.ExecContext(a.ctx, a.entries[:rows*entryColumns]...); err != nil {
			return err
		}
		a.entries = a.entries[rows*entryColumns:]
	}
	return nil
}

func (a *appending) insert(k key, c *ledger.Closing) (bool, error) {
	arguments, err := closingArguments(k, c, a.now)
	if err != nil {
		return false, err
	}
	result, err := a.use.insertClosing.ExecContext(a.ctx, arguments...)
	if err != nil {
		return false, err
	}
	inserted, err := result.RowsAffected()
	return inserted == 1, err
}

func (a *appending) replace(k key, c *ledger.Closing) error {
	arguments, err := closingArguments(k, c, a.now)
	if err != nil {
		return err
	}
	result, err := a.use.replaceClosing.ExecContext(a.ctx, arguments...)
	if err != nil {
		return err
	}
	if replaced, err := result.RowsAffected(); err != nil || replaced != 1 {
		return errors.Join(err, fmt.Errorf("replaced %d closings of one reservation", replaced))
	}
	return nil
}

func closingArguments(k key, c *ledger.Closing, now int64) ([]any, error) {
	labels, err := posting.EncodeLabels(c.Labels)
	if err != nil {
		return nil, err
	}
	outcome := c.Outcome
	if outcome == nil {
		outcome = []byte{} // nil would be NULL
	}
	return []any{
		k.account, k.reservation[:], k.month, int(c.Rank), c.Late, c.Degraded,
		c.Minted.UnixMicro(), c.ClosedAt.UnixMicro(), now, c.Body[:], c.PriceVersion, labels, outcome,
	}, nil
}

func (a *appending) winner(k key) (ledger.Verdict, error) {
	var (
		verdict  ledger.Verdict
		body     []byte
		closedAt int64
	)
	err := a.use.selectWinner.QueryRowContext(a.ctx, k.account, k.reservation[:], k.month).
		Scan(&verdict.Rank, &body, &verdict.Outcome, &verdict.Late, &closedAt)
	if err != nil {
		return ledger.Verdict{}, err
	}
	copy(verdict.Body[:], body)
	verdict.Outcome = present(verdict.Outcome)
	verdict.ClosedAt = time.UnixMicro(closedAt).UTC()
	return verdict, nil
}

func (a *appending) readCharges(k key, r *reservation) error {
	rows, err := a.use.selectCharges.QueryContext(a.ctx, k.account, k.reservation[:], k.month)
	if err != nil {
		return err
	}
	r.posted, err = readCharges(k.account, rows)
	for _, charge := range r.posted.Charges {
		a.rows.Touch(charge.Row, charge.Key)
	}
	return err
}

// readCharges reads and closes the rows of selectCharges.
func readCharges(account string, rows *sql.Rows) (r posting.Reservation, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var (
			id                          []byte
			limit, scope, period, meter sql.NullString
			charge                      posting.Charge
			sequence                    int
		)
		if err := rows.Scan(&id, &limit, &scope, &period, &meter, &charge.Amount, &sequence); err != nil {
			return r, err
		}
		if !limit.Valid {
			return r, fmt.Errorf("the books are damaged: entries of account %q name a usage row that does not exist (%x)", account, id)
		}
		copy(charge.Row[:], id)
		charge.Key = ledger.UsageKey{Account: account, Limit: limit.String, Scope: scope.String, Period: period.String, Meter: quota.Meter(meter.String)}
		r.Charges = append(r.Charges, charge)
		r.Sequence = max(r.Sequence, sequence)
	}
	return r, rows.Err()
}

// writeSums adds the differences to the reports and to the usage rows.
func (a *appending) writeSums() error {
	if err := a.labels.writeDeltas(a.ctx, a.use, &a.deltas); err != nil {
		return err
	}
	for _, row := range a.rows.InOrder() {
		if err := a.writeUsage(row); err != nil {
			return err
		}
	}
	return nil
}

// writeUsage adds the row's difference. The sum is formed here and not in SQL,
// where an integer that overflows turns into a floating-point number; the write
// lock keeps the value from changing in between.
func (a *appending) writeUsage(row *posting.Row) error {
	err := a.use.selectRow.QueryRowContext(a.ctx, row.ID[:]).Scan(&row.Used, &row.Version)
	exists := err == nil
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if exists && row.Difference == 0 {
		return nil
	}
	used, err := row.Used.Add(row.Difference)
	if err != nil {
		return posting.Overflow(row)
	}
	row.Used = used
	if row.Difference != 0 {
		row.Version++
		if a.change == 0 {
			// The write lock is ours: nobody can take the same number.
			if err := a.use.selectNextChange.QueryRowContext(a.ctx).Scan(&a.change); err != nil {
				return err
			}
		}
	}
	if exists {
		_, err = a.use.updateRow.ExecContext(a.ctx, int64(row.Used), row.Version, a.now, a.change, row.ID[:])
	} else {
		_, err = a.use.insertRow.ExecContext(a.ctx, row.ID[:], row.Key.Account, row.Key.Limit, row.Key.Scope,
			row.Key.Period, string(row.Key.Meter), int64(row.Used), row.Version, a.now, a.changeOf(row))
	}
	return err
}

// changeOf returns the number under which a new row stands among the changes:
// 0 where it has not changed yet.
func (a *appending) changeOf(row *posting.Row) int64 {
	if row.Difference == 0 {
		return 0
	}
	return a.change
}

// present returns nil for no bytes, so that both engines return the same.
func present(data []byte) []byte {
	if len(data) == 0 {
		return nil
	}
	return data
}
