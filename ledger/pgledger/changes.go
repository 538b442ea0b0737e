package pgledger

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// Changes implements [ledger.Reader].
//
// The mark is a snapshot of PostgreSQL: a list of the transactions that had
// been committed. What a later snapshot shows beyond it was committed in
// between, in whatever order the transactions began.
func (l *Ledger) Changes(ctx context.Context, mark string, limit int) (ledger.ChangesPage, error) {
	if err := ledger.ValidatePage(limit); err != nil {
		return ledger.ChangesPage{}, err
	}
	m, err := parseMark(mark)
	if err != nil {
		return ledger.ChangesPage{}, err
	}
	if err := l.enter(); err != nil {
		return ledger.ChangesPage{}, err
	}
	defer l.calls.Done()
	const doing = "read what changed"
	if mark == "" {
		var standby bool
		var now string
		err := l.pool.QueryRow(ctx, selectSnapshot).Scan(&standby, &now)
		if err == nil && standby {
			err = errStandby
		}
		if err != nil {
			return ledger.ChangesPage{}, wrap(doing, err)
		}
		return ledger.ChangesPage{Mark: now}, nil
	}
	page, err := l.changes(ctx, m, limit)
	switch {
	case errors.Is(err, ledger.ErrOldMark):
		return page, err
	case isUnreadable(err):
		return page, errBadMark
	}
	return page, wrap(doing, err)
}

func (l *Ledger) changes(ctx context.Context, m changeMark, limit int) (ledger.ChangesPage, error) {
	later := pgtype.Text{String: m.later, Valid: m.later != ""}
	rows, err := l.pool.Query(ctx, selectChanges, m.earlier, later, uuid(m.after), limit+1)
	if err != nil {
		return ledger.ChangesPage{}, err
	}
	var (
		page                                  ledger.ChangesPage
		standby, unknown                      bool
		id                                    pgtype.UUID
		account, limitID, scope, period, unit pgtype.Text
		used, version                         pgtype.Int8
		into                                  = []any{&standby, &m.later, &unknown, &id, &account, &limitID, &scope, &period, &unit, &used, &version}
	)
	_, err = pgx.ForEachRow(rows, into, func() error {
		switch {
		case standby:
			return errStandby
		case unknown:
			return ledger.ErrOldMark
		case !id.Valid:
			return nil
		case len(page.Usage) == limit:
			page.More = true
			return nil
		}
		m.after = id.Bytes
		page.Usage = append(page.Usage, ledger.Usage{
			UsageKey: ledger.UsageKey{
				Account: account.String, Limit: limitID.String, Scope: scope.String, Period: period.String, Meter: quota.Meter(unit.String),
			},
			Used: quota.Amount(used.Int64), Version: version.Int64,
		})
		return nil
	})
	if err != nil {
		return ledger.ChangesPage{}, err
	}
	if !page.More {
		m = changeMark{earlier: m.later}
	}
	page.Mark = m.String()
	return page, nil
}

// changeMark is where a reader of changes stands: it has seen what was visible
// in one snapshot, and of what is visible in a later one the rows up to an id.
type changeMark struct {
	earlier string
	later   string // "" where the next look takes a new one
	after   ledger.RowID
}

func (m changeMark) String() string {
	if m.later == "" {
		return m.earlier
	}
	return fmt.Sprintf("%s/%s/%x", m.earlier, m.later, m.after[:])
}

// maxMarkBytes bounds a mark. A snapshot lists the transactions under way, of
// which there are no more than connections.
const maxMarkBytes = 1 << 20

var errBadMark = fmt.Errorf("%w: mark: is none that Changes gave; start with the empty one", ledger.ErrInvalid)

func parseMark(text string) (changeMark, error) {
	if text == "" {
		return changeMark{}, nil
	}
	if len(text) > maxMarkBytes {
		return changeMark{}, errBadMark
	}
	parts := strings.Split(text, "/")
	m := changeMark{earlier: parts[0]}
	switch len(parts) {
	case 1:
	case 3:
		m.later = parts[1]
		id, err := parseRowID(parts[2])
		if err != nil || !isSnapshot(m.later) {
			return changeMark{}, errBadMark
		}
		m.after = id
	default:
		return changeMark{}, errBadMark
	}
	if !isSnapshot(m.earlier) {
		return changeMark{}, errBadMark
	}
	return m, nil
}

// snapshotText is how PostgreSQL writes a pg_snapshot: xmin:xmax:xip list.
var snapshotText = regexp.MustCompile(`^[0-9]{1,20}:[0-9]{1,20}:([0-9]{1,20}(,[0-9]{1,20})*)?$`)

func isSnapshot(text string) bool { return snapshotText.MatchString(text) }

func parseRowID(text string) (ledger.RowID, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(ledger.RowID{}) {
		return ledger.RowID{}, errBadMark
	}
	return ledger.RowID(raw), nil
}

// pruneAtOnce is how many rows of the log of changes one call deletes.
const pruneAtOnce = 10_000

// pruneChanges deletes a bounded piece of the log of changes that no mark of
// the last MarkLife needs. It says whether there may be more.
func (l *Ledger) pruneChanges(ctx context.Context) (more bool, err error) {
	// The horizon first: from then on older marks are refused, whether or not
	// their rows are still there.
	if _, err := l.pool.Exec(ctx, turnPruned, ledger.MarkLife); err != nil {
		return false, err
	}
	tag, err := l.pool.Exec(ctx, pruneChanges, pruneAtOnce)
	return tag.RowsAffected() == pruneAtOnce, err
}
