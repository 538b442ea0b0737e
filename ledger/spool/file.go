package spool

import (
	"context"
	"database/sql"
	_ "embed" // the schema is a file
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
)

//go:embed schema.sql
var schema string

const (
	// layout is the user_version that schema.sql sets.
	layout = 1
	// pageBytes is the size of a page of the file, SQLite's default.
	pageBytes = 4096
	// busy is how long a statement waits for somebody who looks into the file.
	busy = 5 * time.Second
	// readers is how many reads run at once.
	readers = 2
	// shrinkBytes is the size from which on a file that was drained gives its
	// room back to the disk.
	shrinkBytes = 64 << 20
	// logPages is how many pages the write-ahead log takes before they are
	// moved into the file: 1 MiB.
	logPages = 256
)

// file is the spool on disk. Its writes must not be called concurrently.
type file struct {
	path     string
	maxBytes int64
	write    *sql.DB // one connection
	read     *sql.DB

	find, insert, remove, fileAway *sql.Stmt
	reserve                        reserve
}

func openFile(ctx context.Context, path string, maxBytes int64) (_ *file, err error) {
	f := &file{path: path, maxBytes: maxBytes, reserve: reserve{path: path + "-reserve"}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open the spool %s: %w", path, err), f.close())
		}
	}()
	if f.write, err = sqliteledger.OpenFile(path, busy, fmt.Sprintf("max_page_count(%d)", maxBytes/pageBytes),
		fmt.Sprintf("wal_autocheckpoint(%d)", logPages)); err != nil {
		return nil, err
	}
	f.write.SetMaxOpenConns(1)
	if f.read, err = sqliteledger.OpenFile(path, busy, "query_only(on)"); err != nil {
		return nil, err
	}
	f.read.SetMaxOpenConns(readers)
	if err := f.prepare(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *file) prepare(ctx context.Context) error {
	var version int
	if err := f.write.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil {
		return err
	}
	switch version {
	case 0:
		tx, err := f.write.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, schema); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	case layout:
	default:
		return fmt.Errorf("its layout is version %d, this program knows %d; use the newer program that wrote it until it is drained", version, layout)
	}
	for _, one := range []struct {
		into **sql.Stmt
		text string
	}{
		{&f.find, `SELECT position, ` + columns + ` FROM spooled WHERE account = ? AND reservation = ? AND month = ?`},
		{&f.insert, `INSERT INTO spooled (` + columns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`},
		{&f.remove, `DELETE FROM spooled WHERE position = ?`},
		{&f.fileAway, `INSERT INTO filed (` + columns + `, filed_at_us, reason, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`},
	} {
		statement, err := f.write.PrepareContext(ctx, one.text)
		if err != nil {
			return err
		}
		*one.into = statement
	}
	return nil
}

// inWrite runs do in one transaction, which is on the disk when it returns
// without an error.
func (f *file) inWrite(do func(*sql.Tx) error) error {
	// A transaction that has begun goes to its end: it takes milliseconds.
	tx, err := f.write.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, rolledBack(tx))
	}
	if err := tx.Commit(); err != nil {
		return errors.Join(err, rolledBack(tx))
	}
	return nil
}

// inRemoval is inWrite for a transaction that makes room: on a full disk it uses
// the reserve.
func (f *file) inRemoval(do func(*sql.Tx) error) error {
	err := f.inWrite(do)
	if c := code(err); (c == sqlite3.SQLITE_FULL || c == sqlite3.SQLITE_IOERR) && f.reserve.release() {
		err = f.inWrite(do)
	}
	return err
}

// rolledBack ends a transaction. SQLite may have done so by itself.
func rolledBack(tx *sql.Tx) error {
	err := tx.Rollback()
	if errors.Is(err, sql.ErrTxDone) || code(err) == sqlite3.SQLITE_ERROR {
		return nil
	}
	return err
}

// scan calls visit for the key of every closing in the file.
func (f *file) scan(ctx context.Context, visit func(key)) (err error) {
	rows, err := f.read.QueryContext(ctx, `SELECT account, reservation, month FROM spooled`)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var k key
		var reservation []byte
		if err := rows.Scan(&k.account, &reservation, &k.month); err != nil {
			return err
		}
		copy(k.reservation[:], reservation)
		visit(k)
	}
	return rows.Err()
}

// oldest returns the first closings, of one account or of all ("").
func (f *file) oldest(ctx context.Context, account string, most, bytes int) (found []row, err error) {
	query, arguments := `SELECT position, `+columns+` FROM spooled ORDER BY position LIMIT ?`, []any{most}
	if account != "" {
		query, arguments = `SELECT position, `+columns+` FROM spooled WHERE account = ? ORDER BY position LIMIT ?`, []any{account, most}
	}
	rows, err := f.read.QueryContext(ctx, query, arguments...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for bytes > 0 && rows.Next() {
		r, err := scanRow(rows.Scan)
		if err != nil {
			return nil, err
		}
		found = append(found, r)
		bytes -= r.bytes()
	}
	return found, rows.Err()
}

// closing returns the closing of a reservation, if there is one.
func (f *file) closing(ctx context.Context, k key) (row, bool, error) {
	r, err := scanRow(f.read.QueryRowContext(ctx, `SELECT position, `+columns+` FROM spooled WHERE account = ? AND reservation = ? AND month = ?`,
		k.account, k.reservation[:], k.month).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return row{}, false, nil
	}
	if err == nil {
		err = r.unreadable
	}
	return r, err == nil, err
}

// measure returns the bytes in use, and when the first closing was spooled, in
// microseconds, 0 if there is none.
func (f *file) measure(ctx context.Context) (bytes, since int64, err error) {
	err = f.read.QueryRowContext(ctx, `SELECT
		((SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)) * ?,
		coalesce((SELECT spooled_at_us FROM spooled ORDER BY position LIMIT 1), 0)`, pageBytes).Scan(&bytes, &since)
	return bytes, since, err
}

// filed returns how many closings are filed.
func (f *file) filed(ctx context.Context) (count int, err error) {
	err = f.read.QueryRowContext(ctx, `SELECT count(*) FROM filed`).Scan(&count)
	return count, err
}

// shrink gives the room of a large file that was drained back to the disk.
func (f *file) shrink(ctx context.Context) error {
	var pages int64
	if err := f.write.QueryRowContext(ctx, `PRAGMA page_count`).Scan(&pages); err != nil {
		return err
	}
	if pages*pageBytes < shrinkBytes {
		return nil
	}
	_, err := f.write.ExecContext(ctx, `VACUUM`)
	return err
}

func (f *file) close() error {
	var errs []error
	for _, statement := range []*sql.Stmt{f.find, f.insert, f.remove, f.fileAway} {
		if statement != nil {
			errs = append(errs, statement.Close())
		}
	}
	for _, db := range []*sql.DB{f.read, f.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// probe writes a row of some size and takes it back, which needs room in the
// file and on the disk.
func (f *file) probe() error {
	return f.inWrite(func(tx *sql.Tx) error {
		if _, err := tx.Exec(`INSERT INTO probe (room) VALUES (zeroblob(?))`, 8*pageBytes); err != nil {
			return err
		}
		_, err := tx.Exec(`DELETE FROM probe`)
		return err
	})
}

// errFile says that the trouble is here, not at the ledger behind.
var errFile = errors.New("the spool's file")

// failed says that the file could not be written or read, and what helps.
func (f *file) failed(doing string, err error) error {
	hint := "check the disk"
	switch code(err) {
	case sqlite3.SQLITE_FULL:
		hint = fmt.Sprintf("there is no room: bring the ledger's server back so that it drains, free space on the disk, or raise spool_max_bytes above %d", f.maxBytes)
	case sqlite3.SQLITE_IOERR:
		hint = "the disk is full or fails: bring the ledger's server back so that the spool drains, or free space on the disk"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		hint = "the file can't be written: check its rights and whether the disk is mounted read-only"
	}
	return fmt.Errorf("%w: %w %s: %s: %s: %w", ledger.ErrUnavailable, errFile, f.path, doing, hint, err)
}

// code returns SQLite's primary result code, or 0.
func code(err error) int {
	var failure *sqlite.Error
	if errors.As(err, &failure) {
		return failure.Code() & 0xff
	}
	return sqlite3.SQLITE_OK
}
