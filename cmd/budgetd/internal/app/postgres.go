package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
)

const (
	// minPostgres is server_version_num of the oldest PostgreSQL that is
	// tested: what is older gets no fixes any more.
	minPostgres = 140000
	// connectTimeout bounds one connection to PostgreSQL, and startTimeout
	// everything that the start asks of a server.
	connectTimeout = 5 * time.Second
	startTimeout   = 30 * time.Second
)

// openPostgres returns a pool of at most that many connections, which are made
// when they are needed.
func openPostgres(ctx context.Context, address config.URL, connections int) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(address.Reveal())
	if err != nil {
		// pgx hides the password of what it can't parse, but not when it takes
		// something else for it.
		return nil, errors.New("postgres: the address can't be read; write postgres://user:password@host:5432/database and percent-encode special characters")
	}
	c.ConnConfig.ConnectTimeout = connectTimeout
	if c.ConnConfig.RuntimeParams["application_name"] == "" {
		c.ConnConfig.RuntimeParams["application_name"] = "budgetd"
	}
	c.MaxConns = int32(connections)
	c.MinConns = min(c.MinConns, c.MaxConns)
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, postgresProblem(address, err)
	}
	return pool, nil
}

// checkPostgres says everything that is wrong with a PostgreSQL for us, and
// changes nothing.
func checkPostgres(ctx context.Context, pool *pgxpool.Pool, address config.URL) []error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var (
		version                         int
		name, database, user            string
		standby, readOnly, mayUse, mayC bool
	)
	err := pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_version'),
		current_database(), current_user,
		pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on',
		has_database_privilege(current_database(), 'CONNECT'),
		COALESCE(has_schema_privilege(current_schema(), 'CREATE'), false)`).
		Scan(&version, &name, &database, &user, &standby, &readOnly, &mayUse, &mayC)
	if err != nil {
		return []error{postgresProblem(address, err)}
	}
	var problems []error
	add := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("postgres %s: "+format, append([]any{address}, args...)...))
	}
	if version < minPostgres {
		add("version %s is too old; use 14 or later", name)
	}
	switch {
	case standby:
		add("is a standby, which can't be written to; give the address of the primary, or add target_session_attrs=read-write with every host")
	case readOnly:
		add("default_transaction_read_only is on for %s in %s; switch it off for this role and database", user, database)
	}
	if !mayC {
		add("%s may not create tables in database %s; GRANT CREATE ON SCHEMA public TO %s, or give it a schema of its own", user, database, pgx.Identifier{user}.Sanitize())
	}
	return problems
}

// postgresProblem says what keeps a server from being asked, without the
// password that errors of the driver may hold.
func postgresProblem(address config.URL, err error) error {
	var answered *pgconn.PgError
	if errors.As(err, &answered) {
		hint := ""
		switch {
		case answered.Code == "28P01" || answered.Code == "28000":
			hint = "; check user and password, PGPASSWORD, and pg_hba.conf"
		case answered.Code == "3D000":
			hint = "; create the database first: createdb"
		case strings.HasPrefix(answered.Code, "53"):
			hint = "; the server has no connections left"
		}
		return fmt.Errorf("postgres %s: %s (SQLSTATE %s)%s", address, answered.Message, answered.Code, hint)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("postgres %s: does not answer in time; check host, port and firewall", address)
	}
	var network interface{ Timeout() bool }
	if errors.As(err, &network) {
		return fmt.Errorf("postgres %s: can't be reached: %s", address, innermost(err))
	}
	return fmt.Errorf("postgres %s: %s", address, innermost(err))
}

// innermost is the cause at the bottom: what is above it may hold the address.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) > 0 {
				next = joined.Unwrap()[len(joined.Unwrap())-1]
			}
		}
		if next == nil {
			return err.Error()
		}
		err = next
	}
}
