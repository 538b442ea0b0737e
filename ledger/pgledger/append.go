package pgledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/internal/posting"
	"github.com/budgetd/budgetd/quota"
)

// rollbackWithin bounds the wait for a ROLLBACK after a failure. A connection
// that does not answer in time is thrown away.
const rollbackWithin = time.Second

// Append implements [ledger.Appender].
func (l *Ledger) Append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	if err := ledger.ValidateAll(closings); err != nil {
		return nil, err
	}
	if len(closings) == 0 {
		return nil, nil
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.calls.Done()

	doing := fmt.Sprintf("append %d closings", len(closings))
	if err := l.months.ensure(ctx, l.pool, closings); err != nil {
		return nil, wrap(doing, err)
	}
	verdicts, err := l.append(ctx, closings)
	if isMissingPartition(err) {
		// Somebody dropped or detached the partition since we looked.
		if err = l.months.load(ctx, l.pool); err == nil {
			err = l.months.ensure(ctx, l.pool, closings)
		}
		if err == nil {
			verdicts, err = l.append(ctx, closings)
		}
	}
	if err != nil {
		return nil, wrap(doing, err)
	}
	newest := slices.MaxFunc(closings, func(a, b ledger.Closing) int { return a.Minted.Compare(b.Minted) })
	l.makeAhead(ledger.MonthOf(newest.Minted))
	return verdicts, nil
}

func (l *Ledger) append(ctx context.Context, closings []ledger.Closing) ([]ledger.Verdict, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release() // throws the connection away if a transaction is open

	a := newAppend(closings, &l.labels)
	if len(a.groups) == len(closings) && l.mayBeNew() {
		verdicts, err := a.appendNew(ctx, conn)
		if !isConflict(err) {
			return verdicts, err
		}
		l.foundConflict()
		a = newAppend(closings, &l.labels)
	}
	return a.appendByRank(ctx, conn)
}

// carefulFor is how many Appends go by rank at once after one found that a
// reservation had a closing already: repeats come in swarms.
const carefulFor = 32

// mayBeNew says whether to bet that the reservations have no closing yet.
func (l *Ledger) mayBeNew() bool {
	return l.careful.Load() <= 0 || l.careful.Add(-1) < 0
}

func (l *Ledger) foundConflict() { l.careful.Store(carefulFor) }

func rollBack(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() || conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWithin)
	defer cancel()
	// On failure the transaction stays open, and Release drops the connection.
	_, _ = conn.Exec(ctx, "ROLLBACK")
}

// appending is one Append under way.
type appending struct {
	closings []ledger.Closing
	groups   []group
	second   bool // a group has a second closing

	entries  monthEntries
	rows     posting.Rows
	deltas   posting.Deltas
	labels   *labelSets
	verdicts []ledger.Verdict
}

// group is the closings of one reservation in one Append. Treated in order, at
// most two of them can be written: the first, and the first after it of a
// higher rank.
type group struct {
	key         key
	closings    []int // positions, ascending
	first       int   // position
	second      int   // position, or -1
	firstIn     bool  // first was written
	secondIn    bool  // second was written
	replaced    bool  // something that stood before this Append was replaced
	stored      *ledger.Verdict
	reservation posting.Reservation
}

// key is the primary key of a closing.
type key struct {
	account     string
	reservation [16]byte
	month       time.Time
}

func (k key) compare(other key) int {
	return cmp.Or(
		strings.Compare(k.account, other.account),
		bytes.Compare(k.reservation[:], other.reservation[:]),
		k.month.Compare(other.month),
	)
}

func newAppend(closings []ledger.Closing, labels *labelSets) *appending {
	a := &appending{closings: closings, labels: labels, groups: make([]group, 0, len(closings))}
	index := make(map[key]int, len(closings))
	for i := range closings {
		c := &closings[i]
		a.entries.lines += len(c.Lines)
		k := key{account: c.Account, reservation: c.Reservation, month: ledger.MonthOf(c.Minted)}
		at, known := index[k]
		if !known {
			index[k] = len(a.groups)
			a.groups = append(a.groups, group{key: k, closings: []int{i}, first: i, second: -1})
			continue
		}
		g := &a.groups[at]
		g.closings = append(g.closings, i)
		if g.second < 0 && c.Rank > closings[g.first].Rank {
			g.second = i
			a.second = true
		}
	}
	slices.SortFunc(a.groups, func(x, y group) int { return x.key.compare(y.key) })
	return a
}

// find returns the group of a key that is in the Append.
func (a *appending) find(k key) (*group, error) {
	at, found := slices.BinarySearchFunc(a.groups, k, func(g group, k key) int { return g.key.compare(k) })
	if !found {
		return nil, fmt.Errorf("the server returned a closing of account %q that was not sent", k.account)
	}
	return &a.groups[at], nil
}

// appendNew writes closings of reservations that have none yet, in one round
// trip. If one has, nothing is written and the error is a conflict.
func (a *appending) appendNew(ctx context.Context, conn *pgxpool.Conn) ([]ledger.Verdict, error) {
	var columns closingColumns
	for i := range a.groups {
		g := &a.groups[i]
		g.firstIn = true
		if err := columns.add(&a.closings[g.first]); err != nil {
			return nil, err
		}
	}
	if err := a.post(); err != nil {
		return nil, err
	}
	if err := a.writeBooks(ctx, conn, &columns); err != nil {
		rollBack(ctx, conn)
		return nil, err
	}
	return a.verdicts, nil
}

// appendByRank writes the closings that outrank what stands.
func (a *appending) appendByRank(ctx context.Context, conn *pgxpool.Conn) ([]ledger.Verdict, error) {
	err := a.writeClosings(ctx, conn)
	if err == nil {
		err = a.readBefore(ctx, conn)
	}
	if err == nil {
		err = a.post()
	}
	if err == nil {
		err = a.writeBooks(ctx, conn, nil)
	}
	if err != nil {
		rollBack(ctx, conn)
		return nil, err
	}
	return a.verdicts, nil
}

// begin opens the transaction whatever the session's defaults are. Each
// statement must see what was committed before it, which a stricter level would
// turn into errors.
const begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

// writeClosings opens the transaction and writes closings by rank.
func (a *appending) writeClosings(ctx context.Context, conn *pgxpool.Conn) error {
	var firsts, seconds closingColumns
	var doubled []*group
	for i := range a.groups {
		g := &a.groups[i]
		if err := firsts.add(&a.closings[g.first]); err != nil {
			return err
		}
		if g.second >= 0 {
			doubled = append(doubled, g)
			if err := seconds.add(&a.closings[g.second]); err != nil {
				return err
			}
		}
	}
	batch := &pgx.Batch{}
	batch.Queue(begin)
	batch.Queue(upsertClosings, firsts.arguments()...)
	if a.second {
		// What stands between the first and the second is the verdict for the
		// closings between them, so read it before it is replaced.
		batch.Queue(selectWinners, keyColumns(doubled)...)
		batch.Queue(upsertClosings, seconds.arguments()...)
	}
	results := conn.SendBatch(ctx, batch)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return err
	}
	if err := a.readWritten(results, false); err != nil {
		return err
	}
	if a.second {
		if err := readWinners(results, doubled); err != nil {
			return err
		}
		if err := a.readWritten(results, true); err != nil {
			return err
		}
	}
	return results.Close()
}

// readWritten notes which closings were written.
func (a *appending) readWritten(results pgx.BatchResults, second bool) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	var (
		account     string
		reservation pgtype.UUID
		month       time.Time
		revision    int
	)
	_, err = pgx.ForEachRow(rows, []any{&account, &reservation, &month, &revision}, func() error {
		g, err := a.find(key{account: account, reservation: reservation.Bytes, month: month.UTC()})
		if err != nil {
			return err
		}
		if second {
			g.secondIn = true
			g.replaced = g.replaced || !g.firstIn
		} else {
			g.firstIn = true
			g.replaced = revision > 1
		}
		return nil
	})
	return err
}

// readBefore reads what was charged before by the closings that were replaced.
func (a *appending) readBefore(ctx context.Context, conn *pgxpool.Conn) error {
	var replaced []*group
	for i := range a.groups {
		if g := &a.groups[i]; g.replaced {
			replaced = append(replaced, g)
		}
	}
	if len(replaced) == 0 {
		return nil
	}
	rows, err := conn.Query(ctx, selectCharges, keyColumns(replaced)...)
	if err != nil {
		return err
	}
	return readCharges(rows, replaced, func(g *group, charge posting.Charge, sequence int, _ ledger.Usage) {
		g.reservation.Charges = append(g.reservation.Charges, charge)
		g.reservation.Sequence = max(g.reservation.Sequence, sequence)
	})
}

// post computes the entries and the differences of what was written.
func (a *appending) post() error {
	for i := range a.groups {
		g := &a.groups[i]
		var columns *entryColumns
		write := func(e posting.Entry) {
			if columns == nil {
				columns = a.entries.of(g.key.month)
			}
			columns.add(&g.key, e)
		}
		if g.firstIn {
			if err := g.reservation.Post(&a.closings[g.first], &a.rows, &a.deltas, write); err != nil {
				return err
			}
		}
		if g.secondIn {
			if err := g.reservation.Post(&a.closings[g.second], &a.rows, &a.deltas, write); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeBooks writes the entries, the deltas and the usage rows, reads what the verdicts
// need, and commits. With opening it also opens the transaction and writes
// those closings, which must be new.
func (a *appending) writeBooks(ctx context.Context, conn *pgxpool.Conn, opening *closingColumns) error {
	var duplicates []*group // nothing of them was written
	for i := range a.groups {
		if g := &a.groups[i]; !g.firstIn && !g.secondIn {
			duplicates = append(duplicates, g)
		}
	}
	ordered := a.rows.InOrder()
	var usage usageColumns
	var changed, unchanged pgtype.FlatArray[pgtype.UUID]
	for _, row := range ordered {
		usage.add(row)
		if row.Difference == 0 {
			unchanged = append(unchanged, uuid(row.ID))
		} else {
			changed = append(changed, uuid(row.ID))
		}
	}

	batch := &pgx.Batch{}
	plain := 0 // statements in front that return nothing
	if opening != nil {
		batch.Queue(begin)
		batch.Queue(insertClosings, opening.arguments()...)
		plain += 2
	}
	for _, columns := range a.entries.months {
		batch.Queue(insertEntries, columns.arguments()...)
		plain++
	}
	plain += a.labels.queueDeltas(batch, &a.deltas)
	if len(changed) > 0 {
		batch.Queue(insertChanges, changed)
		plain++
	}
	if len(ordered) > 0 {
		// Last of the writes: the time for which a busy row stays locked is
		// what bounds how many Appends a second can change it.
		batch.Queue(upsertUsage, usage.arguments()...)
	}
	if len(unchanged) > 0 {
		batch.Queue(selectUsage, unchanged)
	}
	if len(duplicates) > 0 {
		batch.Queue(selectWinners, keyColumns(duplicates)...)
		batch.Queue(selectCharges, keyColumns(duplicates)...)
	}
	batch.Queue("COMMIT")

	results := conn.SendBatch(ctx, batch)
	defer results.Close()
	for range plain {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	if len(ordered) > 0 {
		if err := readUsage(results, &a.rows, false); err != nil {
			return err
		}
	}
	if len(unchanged) > 0 {
		if err := readUsage(results, &a.rows, true); err != nil {
			return err
		}
	}
	charged := make(map[*group][]ledger.Usage, len(duplicates))
	if len(duplicates) > 0 {
		if err := readWinners(results, duplicates); err != nil {
			return err
		}
		rows, err := results.Query()
		if err != nil {
			return err
		}
		err = readCharges(rows, duplicates, func(g *group, _ posting.Charge, _ int, usage ledger.Usage) {
			charged[g] = append(charged[g], usage)
		})
		if err != nil {
			return err
		}
	}
	tag, err := results.Exec()
	if err != nil {
		return err
	}
	if tag.String() != "COMMIT" {
		return fmt.Errorf("COMMIT was answered with %s", tag)
	}
	if err := results.Close(); err != nil {
		return err
	}
	a.labels.learn(a.deltas.LabelSets())
	return a.decide(charged)
}

// readUsage notes the rows' new state. The select has the standby column in
// front.
func readUsage(results pgx.BatchResults, into *posting.Rows, selected bool) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	var (
		standby bool
		id      pgtype.UUID
		used    pgtype.Int8
		version pgtype.Int8
	)
	columns := []any{&id, &used, &version}
	if selected {
		columns = append([]any{&standby}, columns...)
	}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		if !id.Valid {
			return nil
		}
		row := into.Find(id.Bytes)
		if row == nil {
			return errors.New("the server returned a usage row that was not sent")
		}
		row.Used, row.Version = quota.Amount(used.Int64), version.Int64
		return nil
	})
	return err
}

// readWinners notes the stored closings of the groups.
func readWinners(results pgx.BatchResults, groups []*group) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	var (
		position int
		rank     int16
		body     pgtype.UUID
		outcome  []byte
		late     bool
		closedAt time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&position, &rank, &body, &outcome, &late, &closedAt}, func() error {
		groups[position-1].stored = &ledger.Verdict{
			Rank: ledger.Rank(rank), Body: body.Bytes, Outcome: present(outcome), Late: late, ClosedAt: closedAt.UTC(),
		}
		outcome = nil // the next row gets memory of its own
		return nil
	})
	return err
}

// readCharges calls found for each row of selectCharges.
func readCharges(rows pgx.Rows, groups []*group, found func(*group, posting.Charge, int, ledger.Usage)) error {
	var (
		position                    int
		id                          pgtype.UUID
		limit, scope, period, meter pgtype.Text
		charged                     int64
		sequence                    int
		used, version               pgtype.Int8
		into                        = []any{&position, &id, &limit, &scope, &period, &meter, &charged, &sequence, &used, &version}
	)
	_, err := pgx.ForEachRow(rows, into, func() error {
		g := groups[position-1]
		if !limit.Valid {
			return fmt.Errorf("the books are damaged: entries of account %q name a usage row that does not exist (%x)", g.key.account, id.Bytes)
		}
		k := ledger.UsageKey{Account: g.key.account, Limit: limit.String, Scope: scope.String, Period: period.String, Meter: quota.Meter(meter.String)}
		found(g, posting.Charge{Row: id.Bytes, Key: k, Amount: quota.Amount(charged)}, sequence,
			ledger.Usage{UsageKey: k, Used: quota.Amount(used.Int64), Version: version.Int64})
		return nil
	})
	return err
}

// decide makes the verdicts.
func (a *appending) decide(charged map[*group][]ledger.Usage) error {
	a.verdicts = make([]ledger.Verdict, len(a.closings))
	for i := range a.groups {
		g := &a.groups[i]
		usage := charged[g]
		if g.firstIn || g.secondIn {
			usage = g.reservation.Usage(&a.rows)
		} else {
			slices.SortFunc(usage, func(a, b ledger.Usage) int { return a.Compare(b.UsageKey) })
		}
		if !g.firstIn && g.stored == nil {
			return fmt.Errorf("the closing of account %q that stood in the way is gone", g.key.account)
		}
		for _, at := range g.closings {
			var verdict ledger.Verdict
			switch {
			case g.secondIn && at >= g.second:
				verdict = ledger.VerdictOf(&a.closings[g.second])
				verdict.Posted = at == g.second
			case g.firstIn:
				verdict = ledger.VerdictOf(&a.closings[g.first])
				verdict.Posted = at == g.first
			default:
				verdict = *g.stored
			}
			verdict.Usage = usage
			if len(g.closings) > 1 {
				verdict.Usage = slices.Clone(usage) // each verdict is its caller's
			}
			a.verdicts[at] = verdict
		}
	}
	return nil
}

// present returns nil for no bytes, so that both engines return the same.
func present(data []byte) []byte {
	if len(data) == 0 {
		return nil
	}
	return data
}

func uuid(id [16]byte) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// closingColumns are the arguments of upsertClosings.
type closingColumns struct {
	account      pgtype.FlatArray[string]
	reservation  pgtype.FlatArray[pgtype.UUID]
	rank         pgtype.FlatArray[int16]
	late         pgtype.FlatArray[bool]
	degraded     pgtype.FlatArray[bool]
	minted       pgtype.FlatArray[time.Time]
	closedAt     pgtype.FlatArray[time.Time]
	body         pgtype.FlatArray[pgtype.UUID]
	priceVersion pgtype.FlatArray[string]
	labels       pgtype.FlatArray[string]
	outcome      pgtype.FlatArray[[]byte]
}

func (c *closingColumns) add(closing *ledger.Closing) error {
	labels, err := posting.EncodeLabels(closing.Labels)
	if err != nil {
		return err
	}
	outcome := closing.Outcome
	if outcome == nil {
		outcome = []byte{} // nil would be NULL
	}
	c.account = append(c.account, closing.Account)
	c.reservation = append(c.reservation, uuid(closing.Reservation))
	c.rank = append(c.rank, int16(closing.Rank))
	c.late = append(c.late, closing.Late)
	c.degraded = append(c.degraded, closing.Degraded)
	c.minted = append(c.minted, ledger.Instant(closing.Minted))
	c.closedAt = append(c.closedAt, ledger.Instant(closing.ClosedAt))
	c.body = append(c.body, uuid(closing.Body))
	c.priceVersion = append(c.priceVersion, closing.PriceVersion)
	c.labels = append(c.labels, labels)
	c.outcome = append(c.outcome, outcome)
	return nil
}

func (c *closingColumns) arguments() []any {
	return []any{
		c.account, c.reservation, c.rank, c.late, c.degraded,
		c.minted, c.closedAt, c.body, c.priceVersion, c.labels, c.outcome,
	}
}

// keyColumns are the arguments of selectWinners and selectCharges.
func keyColumns(groups []*group) []any {
	var (
		month       pgtype.FlatArray[time.Time]
		account     pgtype.FlatArray[string]
		reservation pgtype.FlatArray[pgtype.UUID]
	)
	for _, g := range groups {
		month = append(month, g.key.month)
		account = append(account, g.key.account)
		reservation = append(reservation, uuid(g.key.reservation))
	}
	return []any{month, account, reservation}
}

// entryColumns are the arguments of insertEntries: entries of one month.
type entryColumns struct {
	month       time.Time
	account     pgtype.FlatArray[string]
	reservation pgtype.FlatArray[pgtype.UUID]
	sequence    pgtype.FlatArray[int32]
	row         pgtype.FlatArray[pgtype.UUID]
	amount      pgtype.FlatArray[int64]
}

func (c *entryColumns) add(k *key, e posting.Entry) {
	c.account = append(c.account, k.account)
	c.reservation = append(c.reservation, uuid(k.reservation))
	c.sequence = append(c.sequence, int32(e.Sequence))
	c.row = append(c.row, uuid(e.Row))
	c.amount = append(c.amount, int64(e.Amount))
}

// grow makes room for so many more entries.
func (c *entryColumns) grow(more int) {
	c.account = slices.Grow(c.account, more)
	c.reservation = slices.Grow(c.reservation, more)
	c.sequence = slices.Grow(c.sequence, more)
	c.row = slices.Grow(c.row, more)
	c.amount = slices.Grow(c.amount, more)
}

func (c *entryColumns) arguments() []any {
	return []any{c.month, c.account, c.reservation, c.sequence, c.row, c.amount}
}

// monthEntries are the entries of an Append, by month; most have one.
type monthEntries struct {
	lines  int // lines of all closings
	months []*entryColumns
}

func (m *monthEntries) of(month time.Time) *entryColumns {
	for _, columns := range m.months {
		if columns.month.Equal(month) {
			return columns
		}
	}
	columns := &entryColumns{month: month}
	if len(m.months) == 0 {
		columns.grow(m.lines)
	}
	m.months = append(m.months, columns)
	return columns
}

// usageColumns are the arguments of upsertUsage.
type usageColumns struct {
	id                                   pgtype.FlatArray[pgtype.UUID]
	account, limit, scope, period, meter pgtype.FlatArray[string]
	difference                           pgtype.FlatArray[int64]
}

func (c *usageColumns) add(row *posting.Row) {
	c.id = append(c.id, uuid(row.ID))
	c.account = append(c.account, row.Key.Account)
	c.limit = append(c.limit, row.Key.Limit)
	c.scope = append(c.scope, row.Key.Scope)
	c.period = append(c.period, row.Key.Period)
	c.meter = append(c.meter, string(row.Key.Meter))
	c.difference = append(c.difference, int64(row.Difference))
}

func (c *usageColumns) arguments() []any {
	return []any{c.id, c.account, c.limit, c.scope, c.period, c.meter, c.difference}
}
