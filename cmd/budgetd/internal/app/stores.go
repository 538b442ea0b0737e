package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/ledger/sqliteledger"
	"github.com/budgetd/budgetd/migrations"
	"github.com/budgetd/budgetd/quota/policystore"
)

// databaseFile is the embedded database in the data directory.
const databaseFile = "budgetd.db"

// busyTimeout is how long a statement on the embedded database waits while
// another process writes.
const busyTimeout = 5 * time.Second

// firstMigration is the version of a schema's first migration.
const firstMigration = 1

// Database is the store of plans, keys and the ledger, as it was found: its
// schema may be old, or not there.
type Database struct {
	DB      *sql.DB
	Dialect migrations.Dialect
	// Where it is, for people: a path, or an address without its password.
	Where string

	// Made: there was no schema before it was opened and migrated now.
	Made bool

	path string // SQLite

	// PostgreSQL: what callers wait for, and what takes seconds (see
	// pgledger.Pools).
	pool, aside *pgxpool.Pool
}

// OpenDatabase opens the store that the configuration names and checks that it
// can be used; it does not migrate it. The embedded database is made if it is
// missing. The error lists everything that is wrong.
func OpenDatabase(ctx context.Context, c config.Config) (*Database, error) {
	if c.Postgres.IsSet() {
		pool, err := openPostgres(ctx, c.Postgres, c.PostgresConnections)
		if err != nil {
			return nil, err
		}
		d := &Database{DB: stdlib.OpenDBFromPool(pool), Dialect: migrations.Postgres, Where: c.Postgres.String(), pool: pool}
		if d.aside, err = openPostgres(ctx, c.Postgres, config.AsideConnections); err != nil {
			return nil, errors.Join(err, d.Close())
		}
		if problems := checkPostgres(ctx, pool, c.Postgres); len(problems) > 0 {
			return nil, errors.Join(append(problems, d.Close())...)
		}
		return d, nil
	}
	// Keys' hashes and what was spent are nobody else's business.
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return nil, fmt.Errorf("data: make the directory: %w", err)
	}
	path := filepath.Join(c.Data, databaseFile)
	db, err := sqliteledger.OpenFile(path, busyTimeout)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	return &Database{DB: db, Dialect: migrations.SQLite, Where: path, path: path}, nil
}

// Migrate applies what is pending and returns it.
func (d *Database) Migrate(ctx context.Context) ([]migrations.Migration, error) {
	applied, err := migrations.Up(ctx, d.DB, d.Dialect)
	if err != nil {
		err = fmt.Errorf("%s: %w", d.Where, err)
	}
	d.Made = len(applied) > 0 && applied[0].Version == firstMigration
	return applied, err
}

// Close closes the database.
func (d *Database) Close() error {
	err := d.DB.Close()
	for _, pool := range []*pgxpool.Pool{d.pool, d.aside} {
		if pool != nil {
			pool.Close()
		}
	}
	return err
}

// Stores are the database and what commands change in it.
type Stores struct {
	*Database
	Policies *policystore.Store
	Keys     *auth.Keys
}

// OpenStores opens and migrates the store, for a command that reads or changes
// it beside a running broker or without one. log may be nil.
func OpenStores(ctx context.Context, c config.Config, log *slog.Logger) (*Stores, error) {
	return openStores(ctx, c, auth.KeysConfig{Log: log}, nil)
}

func openStores(ctx context.Context, c config.Config, keys auth.KeysConfig, clock func() time.Time) (_ *Stores, err error) {
	d, err := OpenDatabase(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	applied, err := d.Migrate(ctx)
	if err != nil {
		return nil, err
	}
	if len(applied) > 0 && keys.Log != nil {
		keys.Log.Info("the schema was migrated", "database", d.Where, "version", applied[len(applied)-1].Version)
	}
	s := &Stores{Database: d, Policies: policystore.Open(d.DB, clock)}
	if s.Keys, err = auth.NewKeys(d.DB, keys); err != nil {
		return nil, err
	}
	return s, nil
}

// Close closes the stores.
func (s *Stores) Close() error {
	return errors.Join(s.Keys.Close(), s.Database.Close())
}
