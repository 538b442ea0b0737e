package sqliteledger

import (
	"errors"
	"fmt"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// wrap turns an error of SQLite into the contract's. What the closings
// themselves cause (an overflow, a broken constraint) stays an ordinary error:
// the transaction was rolled back, and repeating it can't help. Everything else
// (locked too long, disk full, I/O error, schema missing) wraps
// ledger.ErrUnavailable.
func wrap(doing string, err error) error {
	switch {
	case err == nil, errors.Is(err, ledger.ErrUnavailable), errors.Is(err, ledger.ErrInvalid), errors.Is(err, ledger.ErrReused), errors.Is(err, ledger.ErrBelowZero):
		return err
	case errors.Is(err, quota.ErrOverflow):
		return fmt.Errorf("%s: %w", doing, err)
	}
	switch code(err) {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG:
		return fmt.Errorf("%s: %w", doing, err)
	case sqlite3.SQLITE_BUSY:
		return fmt.Errorf("%w: %s: another process holds the file's write lock: %w", ledger.ErrUnavailable, doing, err)
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %s: the disk is full: %w", ledger.ErrUnavailable, doing, err)
	case sqlite3.SQLITE_ERROR:
		if strings.Contains(err.Error(), "no such table") {
			return fmt.Errorf("%w: %s: the schema is missing or old, run budgetd migrate: %w", ledger.ErrUnavailable, doing, err)
		}
	}
	return fmt.Errorf("%w: %s: %w", ledger.ErrUnavailable, doing, err)
}

// code returns SQLite's primary result code, or 0.
func code(err error) int {
	var failure *sqlite.Error
	if errors.As(err, &failure) {
		return failure.Code() & 0xff
	}
	return sqlite3.SQLITE_OK
}
