package servers_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/budgetd/budgetd/test/servers"
)

func TestSharedPostgresIsOneServerWithFsync(t *testing.T) {
	a, b := servers.SharedPostgres(t), servers.SharedPostgres(t)
	if a != b {
		t.Fatal("two servers")
	}
	for setting, want := range map[string]string{"fsync": "on", "synchronous_commit": "on", "max_connections": "200"} {
		if got := query[string](t, a.DSN(), "SELECT current_setting($1)", setting); got != want {
			t.Errorf("%s is %s, want %s", setting, got, want)
		}
	}
}

func TestPostgresSettings(t *testing.T) {
	pg := servers.NewPostgres(t, "fsync=off", "max_connections=20")
	if got := query[string](t, pg.DSN(), "SELECT current_setting('fsync') || current_setting('max_connections')"); got != "off20" {
		t.Fatalf("settings are %s", got)
	}
}

func TestFreshDatabasesAreIsolatedAndDropped(t *testing.T) {
	server := servers.SharedPostgres(t)
	var names []string
	t.Run("two databases", func(t *testing.T) {
		a, b := servers.FreshDatabase(t), servers.FreshDatabase(t)
		execute(t, a, "CREATE TABLE held (n bigint)")
		execute(t, b, "CREATE TABLE held (n bigint)")
		execute(t, a, "INSERT INTO held VALUES (7)")
		if n := query[int](t, b, "SELECT count(*) FROM held"); n != 0 {
			t.Fatalf("%d rows of another test's database", n)
		}
		names = append(names, query[string](t, a, "SELECT current_database()"), query[string](t, b, "SELECT current_database()"))
		// A session that the test forgot does not keep the database.
		if _, err := pgx.Connect(context.Background(), a); err != nil {
			t.Fatal(err)
		}
	})
	if n := query[int](t, server.DSN(), "SELECT count(*) FROM pg_database WHERE datname = ANY($1)", names); n != 0 {
		t.Fatalf("%d of %v are left after their test", n, names)
	}
}

func TestFreshDatabaseFromMigratesOnce(t *testing.T) {
	migrations := 0
	migrate := func(dsn string) error {
		migrations++
		return tryExecute(dsn, "CREATE TABLE entry (n bigint); INSERT INTO entry VALUES (1)")
	}
	for range 3 {
		dsn := servers.FreshDatabaseFrom(t, t.Name(), migrate)
		if n := query[int](t, dsn, "SELECT count(*) FROM entry"); n != 1 {
			t.Fatalf("%d rows in a fresh copy, want the template's one", n)
		}
		execute(t, dsn, "INSERT INTO entry VALUES (2)")
	}
	if migrations != 1 {
		t.Fatalf("migrated %d times, want once", migrations)
	}
}

func TestPostgresKillKeepsWhatWasCommitted(t *testing.T) {
	pg := servers.NewPostgres(t)
	dsn := pg.FreshDatabase(t)
	execute(t, dsn, "CREATE TABLE entry (n bigint); INSERT INTO entry VALUES (1)")
	pid := pg.PID()
	pg.Kill()
	if alive(pid) {
		t.Fatal("the process is there after Kill")
	}
	if err := tryExecute(dsn, "SELECT 1"); err == nil {
		t.Fatal("a killed server answered")
	}
	pg.Restart()
	if n := query[int](t, dsn, "SELECT count(*) FROM entry"); n != 1 {
		t.Fatalf("%d rows after the restart, want 1", n)
	}
	// The session for databases is made anew.
	execute(t, pg.FreshDatabase(t), "SELECT 1")
}

func TestPostgresAsRootRunsAsAnotherUser(t *testing.T) {
	pg := servers.NewPostgres(t)
	uid, ok := userOf(t, pg.PID())
	if !ok {
		return // no /proc here: that the server started at all is what this platform can show
	}
	if uid == 0 || (os.Geteuid() != 0 && uid != os.Geteuid()) {
		t.Fatalf("PostgreSQL runs as user %d, the tests as %d", uid, os.Geteuid())
	}
}

func TestPostgresRefusesOtherPasswords(t *testing.T) {
	cfg, err := pgx.ParseConfig(servers.NewPostgres(t).DSN())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Password = "guess"
	if c, err := pgx.ConnectConfig(t.Context(), cfg); err == nil {
		t.Fatal("let in with a wrong password", c.Close(t.Context()))
	}
}

func tryExecute(dsn, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, sql)
	return errors.Join(err, c.Close(ctx))
}

func execute(t *testing.T, dsn, sql string) {
	t.Helper()
	if err := tryExecute(dsn, sql); err != nil {
		t.Fatal(err)
	}
}

func query[T any](t *testing.T, dsn, sql string, args ...any) T {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	var v T
	if err := c.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
