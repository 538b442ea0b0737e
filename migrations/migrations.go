package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// Dialect names a kind of database.
type Dialect string

// The dialects, by the names of their folders.
const (
	Postgres Dialect = "postgres"
	SQLite   Dialect = "sqlite"
)

// ErrNewerSchema says that a newer version of budgetd has migrated this
// database. Nothing was changed. Upgrade this binary.
var ErrNewerSchema = errors.New("the database schema is newer than this version of budgetd knows")

// versionTable records which migrations were applied.
const versionTable = "budgetd_schema"

// Nodes that start at once wait for each other: a second between looks, for at
// most this many looks.
const maxLockLooks = 300

// Migration is one numbered file and where it stands in a database.
type Migration struct {
	Version   int64     // from 1
	Name      string    // the file's name, as 0001_ledger.sql
	AppliedAt time.Time // zero while the migration is pending
}

// Pending says whether the migration waits to be applied.
func (m Migration) Pending() bool { return m.AppliedAt.IsZero() }

// Up applies what is pending, in order, and returns it; nothing is pending in
// a database that is up to date. Each file is one transaction: when Up fails,
// the files before the one that failed stay applied. Any number of nodes may
// call Up at once, on Postgres and on one SQLite file; each file is applied by
// one of them.
//
// db is open with a driver of the dialect (for Postgres pgx's stdlib) and
// stays open. On SQLite it should have a busy timeout.
func Up(ctx context.Context, db *sql.DB, dialect Dialect) ([]Migration, error) {
	reached := int64(-1)
	var applied []Migration // by all tries together
	for {
		more, err := up(ctx, db, dialect)
		applied = append(applied, more...)
		if err == nil || dialect != SQLite || errors.Is(err, ErrNewerSchema) || ctx.Err() != nil {
			return applied, err
		}
		// SQLite has no lock that outlives a transaction. Of several processes
		// that apply the same file one wins, and the others fail with nothing
		// done. As long as somebody makes progress, look again what is left.
		now, versionErr := databaseVersion(ctx, db, dialect)
		if versionErr != nil || now <= reached {
			return applied, err
		}
		reached = now
	}
}

func up(ctx context.Context, db *sql.DB, dialect Dialect) ([]Migration, error) {
	provider, err := open(ctx, db, dialect)
	if err != nil {
		return nil, err
	}
	results, err := provider.Up(ctx)
	if partial := (*goose.PartialError)(nil); errors.As(err, &partial) {
		results = partial.Applied
		err = fmt.Errorf("%s: %w", path.Base(partial.Failed.Source.Path), partial.Err)
	}
	applied := make([]Migration, 0, len(results))
	for _, result := range results {
		applied = append(applied, Migration{Version: result.Source.Version, Name: path.Base(result.Source.Path)})
	}
	if err != nil {
		return applied, fmt.Errorf("migrate %s: %w", dialect, err)
	}
	return applied, fillTimes(ctx, provider, applied)
}

func fillTimes(ctx context.Context, provider *goose.Provider, applied []Migration) error {
	if len(applied) == 0 {
		return nil
	}
	all, err := status(ctx, provider)
	if err != nil {
		return err
	}
	for i := range applied {
		at, found := slices.BinarySearchFunc(all, applied[i].Version, func(m Migration, version int64) int {
			return cmp.Compare(m.Version, version)
		})
		if found {
			applied[i].AppliedAt = all[at].AppliedAt
		}
	}
	return nil
}

// Status returns every migration that this binary knows, in order. It makes
// the table budgetd_schema if there is none, and changes nothing else.
func Status(ctx context.Context, db *sql.DB, dialect Dialect) ([]Migration, error) {
	provider, err := open(ctx, db, dialect)
	if err != nil {
		return nil, err
	}
	return status(ctx, provider)
}

func status(ctx context.Context, provider *goose.Provider) ([]Migration, error) {
	rows, err := provider.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the schema's state: %w", err)
	}
	all := make([]Migration, 0, len(rows))
	for _, row := range rows {
		migration := Migration{Version: row.Source.Version, Name: path.Base(row.Source.Path)}
		if row.State == goose.StateApplied {
			migration.AppliedAt = row.AppliedAt.UTC()
		}
		all = append(all, migration)
	}
	return all, nil
}

// Pending returns the migrations that wait to be applied, in order.
func Pending(ctx context.Context, db *sql.DB, dialect Dialect) ([]Migration, error) {
	all, err := Status(ctx, db, dialect)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(m Migration) bool { return !m.Pending() }), nil
}

// open returns goose for the dialect's folder, or ErrNewerSchema.
func open(ctx context.Context, db *sql.DB, dialect Dialect) (*goose.Provider, error) {
	provider, err := newProvider(db, dialect, files)
	if err != nil {
		return nil, err
	}
	current, target, err := provider.GetVersions(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the schema's version: %w", err)
	}
	if current > target {
		return nil, fmt.Errorf("%w: it is at %d, this version knows up to %d; upgrade this binary", ErrNewerSchema, current, target)
	}
	return provider, nil
}

func databaseVersion(ctx context.Context, db *sql.DB, dialect Dialect) (int64, error) {
	provider, err := newProvider(db, dialect, files)
	if err != nil {
		return 0, err
	}
	return provider.GetDBVersion(ctx)
}

func newProvider(db *sql.DB, dialect Dialect, from fs.FS) (*goose.Provider, error) {
	options := []goose.ProviderOption{
		goose.WithTableName(versionTable),
		goose.WithDisableGlobalRegistry(true),
		goose.WithLogger(goose.NopLogger()),
	}
	var kind goose.Dialect
	switch dialect {
	case Postgres:
		kind = goose.DialectPostgres
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, maxLockLooks))
		if err != nil {
			return nil, fmt.Errorf("make the migration lock: %w", err)
		}
		options = append(options, goose.WithSessionLocker(locker))
	case SQLite:
		kind = goose.DialectSQLite3
	default:
		return nil, fmt.Errorf("dialect: %q is neither %q nor %q", dialect, Postgres, SQLite)
	}
	folder, err := fs.Sub(from, string(dialect))
	if err != nil {
		return nil, fmt.Errorf("open the migrations of %s: %w", dialect, err)
	}
	provider, err := goose.NewProvider(kind, db, folder, options...)
	if err != nil {
		return nil, fmt.Errorf("read the migrations of %s: %w", dialect, err)
	}
	return provider, nil
}
