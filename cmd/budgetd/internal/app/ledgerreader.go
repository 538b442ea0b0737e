package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/ledger"
	"github.com/budgetd/budgetd/ledger/pgledger"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
)

// LedgerReader reads a ledger, beside a running broker or without one.
type LedgerReader struct {
	ledger.Reader
	// Where it is, for people: a path, or an address without its password.
	Where string

	pool *pgxpool.Pool
	file sqliteledger.Reader
}

// OpenLedgerReader opens the ledger in the store that the configuration names.
// It makes nothing and migrates nothing: a store that is not there is an error.
func OpenLedgerReader(ctx context.Context, c config.Config) (*LedgerReader, error) {
	if c.Postgres.IsSet() {
		pool, err := openPostgres(ctx, c.Postgres, 1)
		if err != nil {
			return nil, err
		}
		if err := pool.Ping(ctx); err != nil {
			pool.Close()
			return nil, postgresProblem(c.Postgres, err)
		}
		return &LedgerReader{Reader: pgledger.NewReader(pool), Where: c.Postgres.String(), pool: pool}, nil
	}
	path := filepath.Join(c.Data, databaseFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("data: %s does not exist; name the broker's --data or --postgres", path)
	}
	file, err := sqliteledger.OpenReader(path)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	return &LedgerReader{Reader: file, Where: path, file: file}, nil
}

// Close closes the ledger.
func (l *LedgerReader) Close() error {
	if l.pool != nil {
		l.pool.Close()
		return nil
	}
	return l.file.Close()
}
