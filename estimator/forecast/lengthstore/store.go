// Package lengthstore keeps what brokers learned of output lengths in the
// database that they share: PostgreSQL or SQLite. Rows are named by a hash, so
// that the table has neither accounts nor models in it.
package lengthstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/budgetd/budgetd/estimator/forecast"
)

// ErrUnavailable says that the store could not be asked. Merging again is safe.
var ErrUnavailable = errors.New("the store of forecasts does not answer")

// Retention is how long a key is kept after its newest length: no forecast looks
// at older ones.
const Retention = forecast.HalfLives * forecast.DefaultHalfLife

// pruneAtOnce bounds the old keys that one Merge removes.
const pruneAtOnce = 1000

// Config is what a Store is told of its database.
type Config struct {
	// RowLocks says that the database locks rows (PostgreSQL). In SQLite, where
	// it is false, writers take turns.
	RowLocks bool
}

// Store is a [forecast.Store], safe for concurrent use.
type Store struct {
	db       *sql.DB
	rowLocks bool
}

var _ forecast.Store = (*Store)(nil)

// Open returns the store in db, which has the table of migration 11 and which it
// does not close: PostgreSQL by pgx's stdlib, or SQLite by modernc.org/sqlite
// with a busy timeout.
func Open(db *sql.DB, config Config) *Store { return &Store{db: db, rowLocks: config.RowLocks} }

// Merge implements [forecast.Store]. The error wraps [ErrUnavailable] or is the
// context's.
func (s *Store) Merge(ctx context.Context, cells []forecast.Cell, now time.Time) ([]forecast.Cell, error) {
	if len(cells) > forecast.MaxShare {
		return nil, fmt.Errorf("merge forecasts: %d keys in one call, at most %d are accepted", len(cells), forecast.MaxShare)
	}
	merged, err := s.merge(ctx, cells, now)
	switch {
	case err == nil:
		return merged, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("merge forecasts: %w", ctx.Err())
	}
	return nil, fmt.Errorf("merge forecasts: %w: %w", ErrUnavailable, err)
}

func (s *Store) merge(ctx context.Context, cells []forecast.Cell, now time.Time) ([]forecast.Cell, error) {
	if len(cells) == 0 {
		return nil, nil
	}
	ids := make([]string, len(cells))
	var known []string // those with lengths
	for i := range cells {
		ids[i] = idOf(&cells[i].Key)
		if len(cells[i].Lengths) > 0 {
			known = append(known, ids[i])
		}
	}
	if err := s.prune(ctx, now); err != nil {
		return nil, err
	}
	// Rows first, by themselves, so that there is one to lock of each. Then locks
	// are taken in one order on all nodes.
	slices.Sort(known)
	if err := s.makeRows(ctx, known, now); err != nil {
		return nil, err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // after a Commit it does nothing
	stored, err := s.lock(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	merged := slices.Clone(cells)
	changed := map[string][]forecast.Length{}
	for i := range merged {
		before := stored[ids[i]]
		merged[i].Lengths = forecast.Union(before, merged[i].Lengths)
		if !slices.Equal(before, merged[i].Lengths) {
			changed[ids[i]] = merged[i].Lengths
		}
	}
	if err := write(ctx, tx, changed); err != nil {
		return nil, err
	}
	return merged, tx.Commit()
}

// prune removes keys of which nothing was learned for long.
func (s *Store) prune(ctx context.Context, now time.Time) error {
	locked := ""
	if s.rowLocks {
		locked = " FOR UPDATE SKIP LOCKED"
	}
	_, err := s.db.ExecContext(ctx, `DELETE FROM forecast_lengths WHERE id IN (
		SELECT id FROM forecast_lengths WHERE newest_us < $1 ORDER BY newest_us LIMIT $2`+locked+`)`,
		now.Add(-Retention).UnixMicro(), pruneAtOnce)
	return err
}

func (s *Store) makeRows(ctx context.Context, ids []string, now time.Time) error {
	if len(ids) == 0 {
		return nil
	}
	var values []any
	for _, id := range ids {
		values = append(values, id, forecast.Pack(nil), now.UnixMicro())
	}
	_, err := s.db.ExecContext(ctx, `INSERT INTO forecast_lengths (id, lengths, newest_us) VALUES `+
		placeholders(len(ids), 3)+` ON CONFLICT DO NOTHING`, values...)
	return err
}

// lock returns what is kept of each id, and keeps others from changing it until
// the transaction ends. What can't be read is of another version, and is learned
// again.
func (s *Store) lock(ctx context.Context, tx *sql.Tx, ids []string) (stored map[string][]forecast.Length, err error) {
	locked := " FOR UPDATE"
	if !s.rowLocks {
		locked = ""
		// A transaction that begins with reading could not go on to write once
		// another has written.
		if _, err := tx.ExecContext(ctx, `UPDATE forecast_lengths SET newest_us = newest_us WHERE id = ''`); err != nil {
			return nil, err
		}
	}
	values := make([]any, len(ids))
	for i, id := range ids {
		values[i] = id
	}
	rows, err := tx.QueryContext(ctx, `SELECT id, lengths FROM forecast_lengths WHERE id IN (VALUES `+
		placeholders(len(ids), 1)+`) ORDER BY id`+locked, values...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	stored = make(map[string][]forecast.Length, len(ids))
	for rows.Next() {
		var id string
		var packed []byte
		if err := rows.Scan(&id, &packed); err != nil {
			return nil, err
		}
		if lengths, err := forecast.Unpack(packed); err == nil {
			stored[id] = lengths
		}
	}
	return stored, rows.Err()
}

func write(ctx context.Context, tx *sql.Tx, changed map[string][]forecast.Length) error {
	if len(changed) == 0 {
		return nil
	}
	var values []any
	for id, lengths := range changed {
		values = append(values, id, forecast.Pack(lengths), lengths[len(lengths)-1].At)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO forecast_lengths (id, lengths, newest_us) VALUES `+placeholders(len(changed), 3)+`
		ON CONFLICT (id) DO UPDATE SET lengths = excluded.lengths, newest_us = excluded.newest_us`, values...)
	return err
}

// idOf is a hash of a key in 32 hexadecimal digits.
func idOf(key *forecast.Key) string {
	var b []byte
	for _, text := range []string{key.Account, key.Model, key.Route} {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	sum := sha256.Sum256(append(b, key.Bound))
	return hex.EncodeToString(sum[:16])
}

// placeholders returns "($1, $2), ($3, $4)" for 2 rows of 2 columns.
func placeholders(rows, columns int) string {
	var text strings.Builder
	for i := range rows * columns {
		switch {
		case i == 0:
			text.WriteString("($")
		case i%columns == 0:
			text.WriteString("), ($")
		default:
			text.WriteString(", $")
		}
		text.WriteString(strconv.Itoa(i + 1))
	}
	return text.String() + ")"
}
