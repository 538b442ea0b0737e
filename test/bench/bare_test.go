package bench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// start is the instant of everything.
var start = time.Date(2026, time.November, 15, 12, 0, 0, 0, time.UTC)

// workload makes closings as a broker does: a quota and two totals each, 350
// sets of labels, an outcome of a few hundred bytes, 16 accounts. Few closings
// of one batch share an account and a set.
type workload struct {
	next    atomic.Uint64
	outcome []byte
}

func newWorkload() *workload { return &workload{outcome: make([]byte, 200)} }

func (w *workload) closings(count int) []ledger.Closing {
	closings := make([]ledger.Closing, count)
	for i := range closings {
		number := w.next.Add(1)
		account := fmt.Sprintf("account-%02d", number%16)
		c := &closings[i]
		*c = ledger.Closing{
			Account: account, Minted: start, ClosedAt: start, Rank: ledger.RankRefunded,
			Outcome: w.outcome, PriceVersion: "2026-11-01",
			Labels: map[string]string{"model": "gpt-4o", "route": fmt.Sprint("route-", number%7), "team": fmt.Sprint("team-", number%50)},
			Lines: []ledger.Line{
				{Limit: "spend.0123abcd", Scope: "model=gpt-4o", Period: "m2026-11-01", Meter: quota.MeterCost, Amount: 2_340_000},
				{Period: "m2026-11-01", Meter: quota.MeterCost, Amount: 2_340_000},
				{Period: "m2026-11-01", Meter: quota.MeterTokens, Amount: 1_100},
			},
		}
		// As reservation ids are: microseconds, then random bytes.
		binary.BigEndian.PutUint64(c.Reservation[:8], uint64(start.UnixMicro())+number*50)
		binary.BigEndian.PutUint64(c.Reservation[8:], number*0x9e3779b97f4a7c15)
	}
	return closings
}

// bare writes the same rows with the fewest statements that can: multi-row
// inserts of closings, entries and deltas, the row that says what changed, and
// an update of the usage rows by the summed differences. It looks at nothing:
// no ranks, no winners, no order.
type bare struct {
	conn *pgx.Conn
}

const (
	bareClosings = `INSERT INTO closings (month, account, reservation, rank, revision, late, degraded, minted, closed_at, body, price_version, labels, outcome)
SELECT '2026-11-01', a, r, 2, 1, false, false, $3, $3, r, p, l::jsonb, o FROM unnest($1::text[], $2::uuid[], $4::text[], $5::text[], $6::bytea[]) AS t (a, r, p, l, o)`
	bareEntries = `INSERT INTO entries (month, account, reservation, sequence, usage_id, amount)
SELECT '2026-11-01', a, r, s, u, d FROM unnest($1::text[], $2::uuid[], $3::integer[], $4::uuid[], $5::bigint[]) AS t (a, r, s, u, d)`
	bareDeltas = `INSERT INTO usage_deltas (hour, used, held, calls, labels, account, meter)
SELECT $1, u, 0, c, l, a, m FROM unnest($2::bigint[], $3::bigint[], $4::uuid[], $5::text[], $6::text[]) AS t (u, c, l, a, m)`
	bareChanges = `INSERT INTO usage_changes (usage_ids) VALUES ($1)`
	bareUsage   = `INSERT INTO usage AS kept (id, account, limit_id, scope, period, meter, used, version)
SELECT i, a, l, s, p, m, d, 1 FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[]) AS t (i, a, l, s, p, m, d)
ON CONFLICT (id) DO UPDATE SET used = kept.used + excluded.used, version = kept.version + 1`
)

// rows are the arguments of the statements.
type rows struct{ closings, entries, deltas, changes, usage []any }

// prepare turns closings into rows, which is not part of what is measured.
func (bare) prepare(closings []ledger.Closing) rows {
	var account, price, labels, entryAccount pgtype.FlatArray[string]
	var reservation, entryReservation, row pgtype.FlatArray[pgtype.UUID]
	var outcome pgtype.FlatArray[[]byte]
	var sequence pgtype.FlatArray[int32]
	var amount pgtype.FlatArray[int64]
	sums := map[ledger.UsageKey]int64{}
	type deltaKey struct{ account, labels, meter string }
	type delta struct{ used, calls int64 }
	deltas := map[deltaKey]delta{}
	for _, c := range closings {
		id := pgtype.UUID{Bytes: c.Reservation, Valid: true}
		account = append(account, c.Account)
		reservation = append(reservation, id)
		price = append(price, c.PriceVersion)
		set := fmt.Sprintf(`{"model":%q,"route":%q,"team":%q}`, c.Labels["model"], c.Labels["route"], c.Labels["team"])
		labels = append(labels, set)
		outcome = append(outcome, c.Outcome)
		for i, line := range c.Lines {
			entryAccount = append(entryAccount, c.Account)
			entryReservation = append(entryReservation, id)
			sequence = append(sequence, int32(i+1))
			row = append(row, pgtype.UUID{Bytes: line.Key(c.Account).ID(), Valid: true})
			amount = append(amount, int64(line.Amount))
			sums[line.Key(c.Account)] += int64(line.Amount)
			if line.Limit == "" {
				key := deltaKey{c.Account, set, string(line.Meter)}
				deltas[key] = delta{deltas[key].used + int64(line.Amount), deltas[key].calls + 1}
			}
		}
	}
	var used, calls pgtype.FlatArray[int64]
	var sets pgtype.FlatArray[pgtype.UUID]
	var deltaAccount, deltaMeter pgtype.FlatArray[string]
	for key, d := range deltas {
		sum := sha256.Sum256([]byte(key.labels))
		sets = append(sets, pgtype.UUID{Bytes: [16]byte(sum[:16]), Valid: true})
		used, calls = append(used, d.used), append(calls, d.calls)
		deltaAccount, deltaMeter = append(deltaAccount, key.account), append(deltaMeter, key.meter)
	}
	var id pgtype.FlatArray[pgtype.UUID]
	var accounts, limit, scope, period, meter pgtype.FlatArray[string]
	var sum pgtype.FlatArray[int64]
	for key, total := range sums {
		id = append(id, pgtype.UUID{Bytes: key.ID(), Valid: true})
		accounts, limit, scope = append(accounts, key.Account), append(limit, key.Limit), append(scope, key.Scope)
		period, meter, sum = append(period, key.Period), append(meter, string(key.Meter)), append(sum, total)
	}
	return rows{
		closings: []any{account, reservation, start, price, labels, outcome},
		entries:  []any{entryAccount, entryReservation, sequence, row, amount},
		deltas:   []any{start.Truncate(time.Hour), used, calls, sets, deltaAccount, deltaMeter},
		changes:  []any{id},
		usage:    []any{id, accounts, limit, scope, period, meter, sum},
	}
}

// write writes the rows in one transaction and one round trip.
func (b bare) write(ctx context.Context, r rows) error {
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	batch.Queue(bareClosings, r.closings...)
	batch.Queue(bareEntries, r.entries...)
	batch.Queue(bareDeltas, r.deltas...)
	batch.Queue(bareChanges, r.changes...)
	batch.Queue(bareUsage, r.usage...)
	batch.Queue("COMMIT")
	return b.conn.SendBatch(ctx, batch).Close()
}
