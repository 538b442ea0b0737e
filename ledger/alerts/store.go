package alerts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// ErrUnavailable says that the store could not be asked. A change may or may
// not have been made; making it again is safe.
var ErrUnavailable = errors.New("the store of alerts does not answer")

// Bounds.
const (
	MaxPage       = 1000 // alerts that one call returns
	MaxErrorBytes = 256  // bytes of a delivery's last error

	// Retention is how long an alert is kept after it was raised: longer than
	// the longest period, a year, so that nothing is raised twice in one.
	Retention = 400 * 24 * time.Hour
)

// Config is what a Store is told of its database.
type Config struct {
	// RowLocks says that the database locks rows (PostgreSQL). In SQLite, where
	// it is false, writers take turns anyway.
	RowLocks bool
}

// Store keeps alerts. It is safe for concurrent use.
type Store struct {
	db         *sql.DB
	skipLocked string // ends a SELECT whose rows are to be changed
	clock      string // SELECTs the database's clock in microseconds
}

// Open returns the store in db, which has the table of migration 7 and which it
// does not close: PostgreSQL by pgx's stdlib, or SQLite by modernc.org/sqlite
// with a busy timeout.
func Open(db *sql.DB, config Config) *Store {
	s := &Store{db: db, clock: `SELECT CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER)`}
	if config.RowLocks {
		s.clock = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
		s.skipLocked = " FOR UPDATE SKIP LOCKED"
	}
	return s
}

// Raise writes the events that are not raised yet, and says of each, in order,
// whether this call raised it. Of equal events the first counts. With deliver
// they wait in the outbox at once. The error wraps [ErrUnavailable] or is the
// context's: then any of them may have been raised.
func (s *Store) Raise(ctx context.Context, events []Event, deliver bool) ([]bool, error) {
	raised := make([]bool, len(events))
	at := make(map[string]int, len(events))
	var ids []string
	for i := range events {
		id := events[i].ID()
		if _, twice := at[id]; !twice {
			at[id] = i
			ids = append(ids, id)
		}
	}
	// In one order on all nodes: two that raise the same ones wait for each
	// other and never in a circle.
	slices.Sort(ids)
	for part := range slices.Chunk(ids, raiseAtOnce) {
		var values []any
		for _, id := range part {
			e := &events[at[id]]
			var next sql.NullInt64
			if deliver {
				next = sql.NullInt64{Int64: e.RaisedAt.UnixMicro(), Valid: true}
			}
			values = append(values, e.Account, e.Limit, e.Scope, e.Period, e.Percent, id, e.LimitName, string(e.Meter),
				int64(e.Used), int64(e.Amount), e.RaisedAt.UnixMicro(), next)
		}
		written, err := s.ids(ctx, `INSERT INTO quota_alerts
			(account, limit_id, scope, period, percent, id, limit_name, meter, used, amount, raised_at_us, next_attempt_us)
			VALUES `+placeholders(len(part), len(values)/len(part))+` ON CONFLICT DO NOTHING RETURNING id`, values...)
		if err != nil {
			return nil, unavailable(ctx, "raise alerts", err)
		}
		for _, id := range written {
			raised[at[id]] = true
		}
	}
	return raised, nil
}

// raiseAtOnce events are written by one statement: times 12 columns it is well
// below both databases' bounds on parameters.
const raiseAtOnce = 256

// Raised returns the alerts that were raised on each usage row, by percent: one
// slice a key, in order, nil where there are none. The error wraps
// [ErrUnavailable] or is the context's.
func (s *Store) Raised(ctx context.Context, keys []ledger.UsageKey) ([][]quota.Alert, error) {
	type row struct{ account, limit, scope, period string }
	rowOf := func(k *ledger.UsageKey) row { return row{k.Account, k.Limit, k.Scope, k.Period} }
	byRow := make(map[row][]quota.Alert, len(keys))
	for part := range slices.Chunk(keys, raiseAtOnce) {
		var values []any
		for i := range part {
			values = append(values, part[i].Account, part[i].Limit, part[i].Scope, part[i].Period)
		}
		err := s.each(ctx, func(rows *sql.Rows) error {
			var r row
			var percent int
			var at int64
			if err := rows.Scan(&r.account, &r.limit, &r.scope, &r.period, &percent, &at); err != nil {
				return err
			}
			byRow[r] = append(byRow[r], quota.Alert{Percent: percent, RaisedAt: fromMicros(at)})
			return nil
		}, `SELECT account, limit_id, scope, period, percent, raised_at_us FROM quota_alerts
			WHERE (account, limit_id, scope, period) IN (VALUES `+placeholders(len(part), 4)+`)
			ORDER BY percent`, values...)
		if err != nil {
			return nil, unavailable(ctx, "read the alerts of usage rows", err)
		}
	}
	raised := make([][]quota.Alert, len(keys))
	for i := range keys {
		// A key that stands in two parts was read twice.
		raised[i] = slices.CompactFunc(slices.Clone(byRow[rowOf(&keys[i])]), func(a, b quota.Alert) bool { return a.Percent == b.Percent })
	}
	return raised, nil
}

// Query selects alerts.
type Query struct {
	Account string // "" for every account
	After   string // Next of the page before; "" starts at the newest
	Limit   int    // 1 to MaxPage
}

// Page is a part of the alerts of a query, the newest first.
type Page struct {
	Alerts []Alert
	Next   string // "" after the last
}

// ErrQuery says that a query is out of its bounds.
var ErrQuery = errors.New("invalid query of alerts")

// List pages through alerts, the newest first. The error wraps [ErrQuery] or
// [ErrUnavailable] or is the context's.
func (s *Store) List(ctx context.Context, q Query) (Page, error) {
	if q.Limit < 1 || q.Limit > MaxPage {
		return Page{}, fmt.Errorf("%w: limit: %d is not between 1 and %d", ErrQuery, q.Limit, MaxPage)
	}
	where, values := []string{"1 = 1"}, []any{}
	if q.Account != "" {
		values = append(values, q.Account)
		where = append(where, "account = $1")
	}
	if q.After != "" {
		at, id, err := parseCursor(q.After)
		if err != nil {
			return Page{}, err
		}
		values = append(values, at, id)
		where = append(where, fmt.Sprintf("(raised_at_us, id) < ($%d, $%d)", len(values)-1, len(values)))
	}
	values = append(values, q.Limit+1)
	var page Page
	err := s.each(ctx, func(rows *sql.Rows) error {
		a, err := scanAlert(rows)
		page.Alerts = append(page.Alerts, a)
		return err
	}, `SELECT `+alertColumns+` FROM quota_alerts WHERE `+strings.Join(where, " AND ")+
		fmt.Sprintf(` ORDER BY raised_at_us DESC, id DESC LIMIT $%d`, len(values)), values...)
	if err != nil {
		return Page{}, unavailable(ctx, "list alerts", err)
	}
	if len(page.Alerts) > q.Limit {
		page.Alerts = page.Alerts[:q.Limit]
		last := &page.Alerts[q.Limit-1]
		page.Next = cursor(last.RaisedAt, last.ID)
	}
	return page, nil
}

func cursor(at time.Time, id string) string { return fmt.Sprintf("%d.%s", at.UnixMicro(), id) }

func parseCursor(text string) (at int64, id string, err error) {
	if n, err := fmt.Sscanf(text, "%d.%s", &at, &id); err != nil || n != 2 || cursor(fromMicros(at), id) != text {
		return 0, "", fmt.Errorf("%w: after: %.60q is not what a page before gave as the next", ErrQuery, text)
	}
	return at, id, nil
}

// Now returns the database's clock, which is one for all nodes. The error wraps
// [ErrUnavailable] or is the context's.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var us int64
	err := s.db.QueryRowContext(ctx, s.clock).Scan(&us)
	return fromMicros(us), unavailable(ctx, "read the clock of the store of alerts", err)
}

// Prune removes at most limit alerts that were raised before the instant, in
// periods that began before it, and wait for nothing, and says how many it
// removed. Whatever clock an alert was raised by, that of a period that runs
// stays. The error wraps [ErrUnavailable] or is the context's.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	ids, err := s.ids(ctx, `DELETE FROM quota_alerts WHERE id IN (
			SELECT id FROM quota_alerts WHERE raised_at_us < $1 AND substr(period, 2) < $2 AND next_attempt_us IS NULL
			ORDER BY raised_at_us, id LIMIT $3`+s.skipLocked+`)
		RETURNING id`, before.UnixMicro(), before.UTC().Format(time.DateOnly), limit)
	return len(ids), unavailable(ctx, "remove old alerts", err)
}

const alertColumns = `id, account, limit_id, scope, period, percent, limit_name, meter, used, amount, raised_at_us,
	attempts, next_attempt_us, delivered_at_us, failed_at_us, last_error`

func scanAlert(rows *sql.Rows) (Alert, error) {
	a := Alert{State: StateQuiet}
	var raised int64
	var next, delivered, failed sql.NullInt64
	err := rows.Scan(&a.ID, &a.Account, &a.Limit, &a.Scope, &a.Period, &a.Percent, &a.LimitName, &a.Meter, &a.Used, &a.Amount, &raised,
		&a.Attempts, &next, &delivered, &failed, &a.LastError)
	if err != nil {
		return Alert{}, err
	}
	a.RaisedAt = fromMicros(raised)
	switch {
	case delivered.Valid:
		a.State, a.DeliveredAt = StateDelivered, fromMicros(delivered.Int64)
	case failed.Valid:
		a.State, a.FailedAt = StateFailed, fromMicros(failed.Int64)
	case next.Valid:
		a.State, a.NextAttempt = StatePending, fromMicros(next.Int64)
	}
	return a, nil
}

// each runs a statement and hands its rows on one by one.
func (s *Store) each(ctx context.Context, row func(*sql.Rows) error, statement string, values ...any) error {
	rows, err := s.db.QueryContext(ctx, statement, values...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// ids runs a statement that returns ids.
func (s *Store) ids(ctx context.Context, statement string, values ...any) ([]string, error) {
	var ids []string
	err := s.each(ctx, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	}, statement, values...)
	return ids, err
}

// placeholders returns "($1, $2), ($3, $4)" for 2 rows of 2 columns.
func placeholders(rows, columns int) string {
	var text strings.Builder
	for i := range rows * columns {
		switch {
		case i == 0:
			text.WriteString("(")
		case i%columns == 0:
			text.WriteString("), (")
		default:
			text.WriteString(", ")
		}
		fmt.Fprintf(&text, "$%d", i+1)
	}
	return text.String() + ")"
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// unavailable says what could not be done.
func unavailable(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	}
	return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
}
