package sqliteledger

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// busyStep is how long SQLite itself waits for another writer. Append goes on
// waiting in such steps, so that it can look at its context between them.
const busyStep = 100 * time.Millisecond

// journalBytes is what the write-ahead log is cut down to after a checkpoint.
const journalBytes = 64 << 20

// OpenFile opens a SQLite file as the ledger needs it (WAL, synchronous=FULL,
// transactions that lock at BEGIN) and makes it, readable by its owner only, if
// it does not exist. Use it to run migrations on the file. busyTimeout is how
// long a statement waits for another writer; pragmas are set on every
// connection, as "max_page_count(1000)".
func OpenFile(path string, busyTimeout time.Duration, pragmas ...string) (*sql.DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open the ledger file: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the ledger file: %w", err)
	}
	if err := file.Close(); err != nil {
		return nil, fmt.Errorf("open the ledger file: %w", err)
	}
	return open(path, "immediate", busyTimeout, pragmas...)
}

func open(path, lock string, busy time.Duration, pragmas ...string) (*sql.DB, error) {
	query := url.Values{
		"_txlock": {lock},
		"_pragma": append([]string{
			"busy_timeout(" + strconv.FormatInt(busy.Milliseconds(), 10) + ")",
			"journal_mode(wal)",
			"synchronous(full)",
			"foreign_keys(on)",
			"journal_size_limit(" + strconv.Itoa(journalBytes) + ")",
		}, pragmas...),
	}
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: query.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return db, nil
}
