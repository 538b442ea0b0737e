package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/budgetd/budgetd/migrations"
)

// Databases of tests are named budgetd_test_<run>_<what>. The run is this
// process's, and it is the application_name of a session that the process
// holds for as long as it uses the server. So another process can tell, on a
// server from outside, which databases were left behind by a process that was
// killed: those whose run has no session.
const databasePrefix = "budgetd_test_"

// databaseWithin bounds one statement that makes or drops a database. With
// fsync on and a busy disk it takes seconds.
const databaseWithin = 60 * time.Second

// template is a database that is migrated once and then cloned.
type template struct {
	once sync.Once
	name string
	err  error
}

// FreshDatabase makes an empty database on [SharedPostgres] for this test,
// drops it when the test ends, and returns its DSN.
func FreshDatabase(tb testing.TB) string {
	tb.Helper()
	return SharedPostgres(tb).FreshDatabase(tb)
}

// FreshDatabaseFrom is [FreshDatabase] with tables in it: on the first call
// with this name it makes a database and has migrate fill it, and each call
// returns a copy for its test. A copy takes a fraction of a migration's time.
// migrate must close its connections: a database in use cannot be copied.
func FreshDatabaseFrom(tb testing.TB, name string, migrate func(dsn string) error) string {
	tb.Helper()
	return SharedPostgres(tb).FreshDatabaseFrom(tb, name, migrate)
}

// MigratedDatabase is [FreshDatabase] with the project's schema in it.
func MigratedDatabase(tb testing.TB) string {
	tb.Helper()
	return SharedPostgres(tb).MigratedDatabase(tb)
}

// MigratedDatabase is the method form of the function [MigratedDatabase].
func (pg *Postgres) MigratedDatabase(tb testing.TB) string {
	tb.Helper()
	return pg.FreshDatabaseFrom(tb, "migrated", func(dsn string) error {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		_, err = migrations.Up(context.Background(), db, migrations.Postgres)
		return err
	})
}

// FreshDatabase makes an empty database for this test, drops it when the test
// ends, and returns its DSN.
func (pg *Postgres) FreshDatabase(tb testing.TB) string {
	tb.Helper()
	// template0 has nothing that somebody might have added to template1.
	return pg.freshFrom(tb, "template0")
}

// FreshDatabaseFrom is the method form of the function [FreshDatabaseFrom].
func (pg *Postgres) FreshDatabaseFrom(tb testing.TB, name string, migrate func(dsn string) error) string {
	tb.Helper()
	t := pg.template(name)
	t.once.Do(func() {
		t.err = errors.New("the making of the template did not finish")
		t.err = pg.fill(t.name, migrate)
	})
	if t.err != nil {
		tb.Fatalf("make the template database %q: %v", name, t.err)
	}
	return pg.freshFrom(tb, t.name)
}

// fill makes the template database.
func (pg *Postgres) fill(name string, migrate func(dsn string) error) error {
	if err := pg.create(name, "template0"); err != nil {
		return err
	}
	dsn, err := withDatabase(pg.dsn, name)
	if err != nil {
		return err
	}
	return migrate(dsn)
}

func (pg *Postgres) template(name string) *template {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	t := pg.templates[name]
	if t == nil {
		t = &template{name: pg.databaseName("template")}
		if pg.templates == nil {
			pg.templates = make(map[string]*template)
		}
		pg.templates[name] = t
	}
	return t
}

func (pg *Postgres) freshFrom(tb testing.TB, source string) string {
	tb.Helper()
	name := pg.databaseName(plainName(tb.Name(), '_'))
	if err := pg.create(name, source); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := pg.drop(name); err != nil {
			tb.Error(err)
		}
	})
	dsn, err := withDatabase(pg.dsn, name)
	if err != nil {
		tb.Fatal(err)
	}
	return dsn
}

// databaseName returns a new name, cut to PostgreSQL's 63 bytes without losing
// what makes it unique.
func (pg *Postgres) databaseName(what string) string {
	const limit = 20
	return databasePrefix + pg.run + "_" + randomHex(4) + "_" + what[:min(len(what), limit)]
}

func (pg *Postgres) create(name, source string) error {
	err := pg.exec("CREATE DATABASE " + quoted(name) + " TEMPLATE " + quoted(source))
	if err != nil {
		return fmt.Errorf("create a test's database: %w", err)
	}
	return nil
}

// drop drops a database and ends the sessions in it.
func (pg *Postgres) drop(name string) error {
	if err := pg.exec("DROP DATABASE IF EXISTS " + quoted(name) + " WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop a test's database: %w", err)
	}
	return nil
}

func (pg *Postgres) exec(sql string) error {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), databaseWithin)
	defer cancel()
	if err := pg.connect(ctx); err != nil {
		return err
	}
	_, err := pg.admin.Exec(ctx, sql)
	return err
}

// connect sees to it that the session that carries the run's name is up.
func (pg *Postgres) connect(ctx context.Context) error {
	if pg.admin != nil && pg.admin.Ping(ctx) == nil {
		return nil
	}
	cfg, err := pgx.ParseConfig(pg.dsn)
	if err != nil {
		return err
	}
	cfg.RuntimeParams["application_name"] = databasePrefix + pg.run
	pg.admin, err = pgx.ConnectConfig(ctx, cfg)
	return err
}

// removeForsaken drops the databases of runs that have no session any more.
func (pg *Postgres) removeForsaken() error {
	const query = `
		SELECT d.datname FROM pg_database d
		WHERE d.datname ~ ('^' || $1 || '[0-9a-f]{12}_')
		AND NOT EXISTS (
			SELECT FROM pg_stat_activity a
			WHERE a.application_name = substr(d.datname, 1, length($1) + 12))`
	names, err := pg.queryNames(query, databasePrefix)
	if err != nil {
		return fmt.Errorf("look for databases left behind: %w", err)
	}
	for _, name := range names {
		if err := pg.drop(name); err != nil {
			return err
		}
	}
	return nil
}

func (pg *Postgres) queryNames(query string, args ...any) ([]string, error) {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), databaseWithin)
	defer cancel()
	if err := pg.connect(ctx); err != nil {
		return nil, err
	}
	rows, err := pg.admin.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// finish drops the templates and ends the run's session.
func (pg *Postgres) finish() error {
	pg.mu.Lock()
	var names []string
	for _, t := range pg.templates {
		names = append(names, t.name)
	}
	pg.templates = nil
	pg.mu.Unlock()
	var errs []error
	for _, name := range names {
		errs = append(errs, pg.drop(name))
	}
	pg.hangUp()
	return errors.Join(errs...)
}

// hangUp ends the run's session, if the server still listens to it.
func (pg *Postgres) hangUp() {
	pg.mu.Lock()
	defer pg.mu.Unlock()
	if pg.admin == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), databaseWithin)
	defer cancel()
	_ = pg.admin.Close(ctx) // the session is over either way
	pg.admin = nil
}

// withDatabase returns the DSN, in either of its forms, with another database.
func withDatabase(dsn, name string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		// Of two settings with one key the last counts.
		return dsn + " dbname=" + name, nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("PostgreSQL DSN: %w", err)
	}
	u.Path = "/" + name
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.RawQuery = query.Encode()
	return u.String(), nil
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }
