package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Postgres is a PostgreSQL server that a test may use but not stop.
type Postgres struct {
	dsn string
	run string // names this process's databases and session: see databases.go

	mu        sync.Mutex
	admin     *pgx.Conn
	templates map[string]*template
}

// DSN returns the connection string of the server's own database, for a role
// that may create databases. Tests put their tables in a [FreshDatabase].
func (pg *Postgres) DSN() string { return pg.dsn }

var sharedPostgres = shared[*Postgres]{finish: (*Postgres).finish}

// SharedPostgres returns the test process's PostgreSQL, started on first use,
// or the one that BUDGETD_TEST_POSTGRES names. It has fsync on, as a ledger's
// server has, and 200 connections.
func SharedPostgres(tb testing.TB) *Postgres {
	tb.Helper()
	pg, err := sharedPostgres.get(func() (*Postgres, error) {
		if dsn := os.Getenv(EnvPostgres); dsn != "" {
			return outsidePostgres(dsn)
		}
		p, err := startPostgres(EnvPostgres)
		if err != nil {
			return nil, err
		}
		return &p.Postgres, nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return pg
}

func outsidePostgres(dsn string) (*Postgres, error) {
	pg := &Postgres{dsn: dsn, run: randomHex(6)}
	if err := pg.removeForsaken(); err != nil {
		return nil, fmt.Errorf("%s: %w", EnvPostgres, err)
	}
	return pg, nil
}

// PostgresProcess is a PostgreSQL server that belongs to one test.
type PostgresProcess struct {
	Postgres
	tb testing.TB
	p  *process
}

// NewPostgres starts a PostgreSQL for this test alone and stops it when the
// test ends. Settings override the configuration, as in
//
//	servers.NewPostgres(t, "fsync=off", "max_connections=20")
func NewPostgres(tb testing.TB, settings ...string) *PostgresProcess {
	tb.Helper()
	pg, err := startPostgres("", settings...)
	if err != nil {
		tb.Fatal(err)
	}
	pg.tb = tb
	tb.Cleanup(func() {
		pg.hangUp()
		stopOwned(tb, pg.p)
	})
	return pg
}

// Kill ends the server at once, as a crash would: nothing is checkpointed, and
// the next start recovers from the write-ahead log. It sends SIGQUIT, at which
// PostgreSQL kills all its processes ("immediate shutdown"); SIGKILL would
// leave them to notice the loss of their parent, some after the restart.
func (pg *PostgresProcess) Kill() {
	pg.tb.Helper()
	if err := pg.p.kill(); err != nil {
		pg.tb.Fatal(err)
	}
}

// Restart kills the server if it runs, starts it at the same address with the
// same data and returns when it answers.
func (pg *PostgresProcess) Restart() {
	pg.tb.Helper()
	if err := pg.p.restart(); err != nil {
		pg.tb.Fatal(err)
	}
}

// Addr returns host:port.
func (pg *PostgresProcess) Addr() string { return pg.p.addr() }

// PID returns the process id of the postmaster, 0 while the server is down.
func (pg *PostgresProcess) PID() int { return pg.p.pid() }

func startPostgres(env string, settings ...string) (*PostgresProcess, error) {
	initdb, postgres, err := postgresBinaries(env)
	if err != nil {
		return nil, err
	}
	owner, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := here.newDir("postgres")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	// The password keeps other users of the machine out. It also tells this
	// server from another that took its port.
	password := randomHex(16)
	if err := initDatabase(initdb, dir, data, password, owner); err != nil {
		return nil, errors.Join(err, removeDir(dir))
	}
	dsn := func(port int) string {
		u := url.URL{
			Scheme:   "postgres",
			User:     url.UserPassword("budgetd", password),
			Host:     loopback(port),
			Path:     "/postgres",
			RawQuery: "sslmode=disable",
		}
		return u.String()
	}
	p := &process{
		name: "postgres",
		dir:  dir,
		end:  syscall.SIGQUIT,
		user: owner,
		command: func(port int) *exec.Cmd {
			args := []string{
				"-D", data,
				"-c", "listen_addresses=127.0.0.1",
				"-c", "port=" + strconv.Itoa(port),
				"-c", "unix_socket_directories=",
				"-c", "max_connections=200",
				"-c", "shared_buffers=64MB",
				"-c", "fsync=on",
			}
			for _, s := range settings {
				args = append(args, "-c", s)
			}
			cmd := exec.Command(postgres, args...)
			cmd.Env = postgresEnv()
			return cmd
		},
		answers: func(ctx context.Context, _, port int) error {
			c, err := pgx.Connect(ctx, dsn(port))
			if err != nil {
				return err
			}
			return errors.Join(c.Ping(ctx), c.Close(ctx))
		},
	}
	if err := p.startAnywhere(false); err != nil {
		return nil, errors.Join(err, removeDir(dir))
	}
	return &PostgresProcess{Postgres: Postgres{dsn: dsn(p.port), run: randomHex(6)}, p: p}, nil
}

// initDatabase makes the data directory. Its files need not be on disk before
// the first start: a machine that crashes in between has no test to go on with.
func initDatabase(initdb, dir, data, password string, owner *syscall.Credential) error {
	secret := filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if owner != nil {
		for _, path := range []string{secret, data} {
			if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
				return fmt.Errorf("give PostgreSQL's files to the user that it runs as: %w", err)
			}
		}
	}
	cmd := exec.Command(initdb, "--pgdata", data, "--username", "budgetd", "--pwfile", secret,
		"--auth", "password", "--encoding", "UTF8", "--locale", "C", "--no-sync")
	cmd.Dir = dir
	cmd.Env = postgresEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", initdb, err, tail(out))
	}
	return os.Remove(secret)
}

// postgresEnv is this process's environment without the variables that
// PostgreSQL takes settings from, and with English messages, as a taken port
// is told by its message.
func postgresEnv() []string {
	var env []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "PG") && !strings.HasPrefix(pair, "LC_") && !strings.HasPrefix(pair, "LANG") {
			env = append(env, pair)
		}
	}
	return append(env, "LC_ALL=C")
}

// unprivileged returns the user that PostgreSQL runs as: nil for the one that
// runs the tests, if that is not root.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody to run it as: run the tests as another user")
}
