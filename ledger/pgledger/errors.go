package pgledger

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/quota"
)

// Error codes of PostgreSQL, appendix A of its manual.
const (
	codeUniqueViolation   = "23505"
	codeCheckViolation    = "23514" // also: no partition of relation found for row
	codeNumericOutOfRange = "22003"
	codeInvalidText       = "22P02"
	codeUndefinedTable    = "42P01"
	codeUndefinedFunction = "42883"
	codeTooOld            = "BUD01" // our own: see 0005_retention.sql
	classDataException    = "22"
	classIntegrity        = "23"
)

// errStandby says that the pool leads to a server that takes no writes.
var errStandby = errors.New("the server is a standby; connect to the primary (target_session_attrs=read-write)")

// wrap turns an error of pgx into the contract's. What the closings themselves
// cause (a value out of range, a broken constraint) stays an ordinary error:
// PostgreSQL has refused the statement, so nothing was written, and repeating
// it can't help. Everything else is trouble of the server, of the connection
// or of its set-up, in which the outcome is unknown, and wraps
// ledger.ErrUnavailable.
func wrap(doing string, err error) error {
	switch {
	case err == nil, errors.Is(err, ledger.ErrUnavailable), errors.Is(err, ledger.ErrInvalid), errors.Is(err, ledger.ErrReused), errors.Is(err, ledger.ErrBelowZero):
		return err
	case errors.Is(err, quota.ErrOverflow):
		return fmt.Errorf("%s: %w", doing, err)
	}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		switch {
		case server.Code == codeTooOld:
			return fmt.Errorf("%w: %s: %w", ledger.ErrTooOld, doing, err)
		case server.Code == codeNumericOutOfRange:
			return fmt.Errorf("%s: a usage row would leave the range of 64 bits: %w", doing, err)
		case isFaultOfData(server):
			return fmt.Errorf("%s: %w", doing, err)
		case server.Code == codeUndefinedTable || server.Code == codeUndefinedFunction:
			return fmt.Errorf("%w: %s: the schema is missing or old, run budgetd migrate: %w", ledger.ErrUnavailable, doing, err)
		}
	}
	return fmt.Errorf("%w: %s: %w", ledger.ErrUnavailable, doing, err)
}

func isFaultOfData(err *pgconn.PgError) bool {
	class := err.Code[:min(2, len(err.Code))]
	return (class == classDataException || class == classIntegrity) && !isMissingPartition(err)
}

// isMissingPartition says that a row's month has no partition. PostgreSQL
// reports it as a violated check that has no name.
func isMissingPartition(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == codeCheckViolation && server.ConstraintName == ""
}

// isConflict says that a row of that key exists.
func isConflict(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == codeUniqueViolation
}

// isUnreadable says that an argument is no text of its type.
func isUnreadable(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == codeInvalidText
}
