package sqliteledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

// readers is how many reads of one process run at once.
const readers = 4

// Config is how a ledger uses its file.
type Config struct {
	// Path of the file. It must exist, with the schema of package migrations.
	Path string
	// BusyTimeout is how long an Append waits while other processes write; 0
	// is 5 s.
	BusyTimeout time.Duration
}

// Ledger is the engine on SQLite. It is safe for concurrent use, beside other
// Ledgers on the same file, in this process or in others.
type Ledger struct {
	write *sql.DB // one connection
	read  *sql.DB
	busy  time.Duration

	turn       chan struct{} // holds one token: the right to write
	statements statements
	labels     labelSets

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

var _ ledger.Ledger = (*Ledger)(nil)

// Open returns a ledger in a file. Close it.
func Open(ctx context.Context, config Config) (_ *Ledger, err error) {
	switch {
	case config.Path == "":
		return nil, errors.New("open the ledger: path: is empty")
	case config.BusyTimeout < 0:
		return nil, fmt.Errorf("open the ledger: busy_timeout: %s is negative", config.BusyTimeout)
	case config.BusyTimeout == 0:
		config.BusyTimeout = 5 * time.Second
	}
	l := &Ledger{busy: config.BusyTimeout, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.closeFiles())
		}
	}()
	if l.write, err = OpenFile(config.Path, min(busyStep, config.BusyTimeout)); err != nil {
		return nil, err
	}
	l.write.SetMaxOpenConns(1)
	path, err := filepath.Abs(config.Path)
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	if l.read, err = open(path, "deferred", config.BusyTimeout, "query_only(on)"); err != nil {
		return nil, err
	}
	l.read.SetMaxOpenConns(readers)
	l.read.SetMaxIdleConns(readers)

	var mode string
	if err := l.write.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode); err != nil {
		return nil, wrap("open the ledger", err)
	}
	if mode != "wal" {
		return nil, fmt.Errorf("open the ledger: %s: the file system does not allow a write-ahead log (journal mode is %q); use a local disk", config.Path, mode)
	}
	if err := l.statements.prepare(ctx, l.write); err != nil {
		return nil, wrap("open the ledger", err)
	}
	return l, nil
}

// Reader answers questions about a ledger and writes nothing. Close it.
type Reader interface {
	ledger.Reader
	Close() error
}

// OpenReader opens the file of a ledger, which must exist, for reading alone,
// also while a broker writes to it.
func OpenReader(path string) (Reader, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	l := &Ledger{}
	if l.read, err = open(path, "deferred", busyStep, "query_only(on)"); err != nil {
		return nil, err
	}
	l.read.SetMaxOpenConns(1)
	return l, nil
}

// enter counts a call in, unless the ledger is closed. The caller calls
// l.calls.Done.
func (l *Ledger) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ledger.ErrClosed
	}
	l.calls.Add(1)
	return nil
}

// Ping answers nil when the write lock can be had.
func (l *Ledger) Ping(ctx context.Context) error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.calls.Done()
	tx, done, err := l.begin(ctx)
	if err != nil {
		return wrap("ping the ledger", err)
	}
	defer done()
	return wrap("ping the ledger", tx.Rollback())
}

// Close waits for the calls under way, refuses those that come later with
// ledger.ErrClosed, and closes the file.
func (l *Ledger) Close() error {
	l.mu.Lock()
	already := l.closed
	l.closed = true
	l.mu.Unlock()
	l.calls.Wait()
	if already {
		return nil
	}
	return l.closeFiles()
}

func (l *Ledger) closeFiles() error {
	errs := []error{l.statements.close()}
	for _, db := range []*sql.DB{l.read, l.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the ledger: %w", err)
	}
	return nil
}
