package app

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/auth"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/quota/policyfile"
	"github.com/budgetd/budgetd/quota/policystore"
	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/servers"
)

// node is what follows the policy in a broker.
type node struct {
	stores  *Stores
	watcher *policystore.Watcher
	log     *broker.Output
}

func migrated(t *testing.T) (dsn string) {
	return servers.FreshDatabaseFrom(t, "app", func(dsn string) error {
		c := config.Default()
		c.Postgres, c.Data = config.NewURL(dsn), t.TempDir()
		stores, err := OpenStores(context.Background(), c, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		return stores.Close()
	})
}

// follow begins to follow the policy, listening and looking at the interval.
func follow(t *testing.T, dsn string, interval time.Duration) *node {
	t.Helper()
	c := config.Default()
	c.Postgres, c.Data = config.NewURL(dsn), t.TempDir()
	n := &node{log: &broker.Output{}}
	a := &App{config: c, log: slog.New(slog.NewTextHandler(n.log, nil))}
	var err error
	if n.stores, err = OpenStores(t.Context(), c, a.log); err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{}, 1)
	if n.watcher, err = policystore.Watch(t.Context(), n.stores.Policies, policystore.WatcherConfig{Interval: interval, Wake: changed, Log: a.log}); err != nil {
		t.Fatal(err)
	}
	listener := a.listenFor(n.stores, changed)
	listener.alive = 20 * time.Millisecond
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = n.watcher.Run(ctx) })
	running.Go(func() { listener.run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		if err := n.stores.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// listeners returns the process ids of the sessions that listen.
func listeners(t *testing.T, db *sql.DB) []int {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND backend_type = 'client backend' AND (query LIKE 'LISTEN %' OR query = '-- ping')`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var pids []int
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return pids
}

func raise(t *testing.T, store *policystore.Store, amount int) int64 {
	t.Helper()
	document, err := policyfile.Parse(fmt.Appendf(nil, "plans: {p: {quotas: [{name: q, meter: tokens, amount: %d, period: day}]}}\naccounts: {acme: {plan: p}}", amount))
	if err != nil {
		t.Fatal(err)
	}
	change, err := store.Apply(t.Context(), document, policystore.Options{By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return change.Version
}

// A change of the policy is in force on every node at once, though they look
// only once a minute, and a revoked key stops working.
func TestChangesAreHeard(t *testing.T) {
	dsn := migrated(t)
	nodes := []*node{follow(t, dsn, time.Minute), follow(t, dsn, time.Minute)}
	here := nodes[0].stores
	soon(t, "both listen", func() bool { return len(listeners(t, here.DB)) == 2 })
	fastest := time.Hour
	for amount := range 5 {
		began := time.Now()
		version := raise(t, here.Policies, amount+1)
		soon(t, "the change is in force", func() bool {
			return nodes[0].watcher.Current().Version >= version && nodes[1].watcher.Current().Version >= version
		})
		fastest = min(fastest, time.Since(began))
		if p := nodes[1].watcher.Current(); p.Plans["p"].Limits[0].Max != quota.Amount(amount+1) {
			t.Errorf("version %d allows %d", p.Version, p.Plans["p"].Limits[0].Max)
		}
	}
	if fastest > 250*time.Millisecond {
		t.Errorf("the fastest of 5 changes took %v to be in force on two nodes", fastest)
	}
	key, secret, err := here.Keys.Create(t.Context(), auth.NewKey{Name: "k", Role: auth.RoleAdmin, By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	there := nodes[1].stores.Keys
	soon(t, "the key works at the other node", func() bool { _, err := there.Authenticate(t.Context(), secret.Reveal()); return err == nil })
	if _, err := here.Keys.Revoke(t.Context(), key.ID, "test"); err != nil {
		t.Fatal(err)
	}
	soon(t, "the revoked key is refused there", func() bool {
		_, err := there.Authenticate(t.Context(), secret.Reveal())
		return err == auth.ErrKeyRevoked
	})
	for i, n := range nodes {
		if strings.Count(n.log.String(), "are not heard") != 0 {
			t.Errorf("node %d says that it hears nothing", i)
		}
	}
}

// A listener whose connection ends, and which can't connect again, is no loss
// but of time: looking at intervals goes on. It comes back by itself, and hears
// what it missed.
func TestListenerLost(t *testing.T) {
	dsn := migrated(t)
	looking, hearing := follow(t, dsn, 20*time.Millisecond), follow(t, dsn, time.Minute)
	// The one session through which everything is done here.
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	soon(t, "both listen", func() bool { return len(listeners(t, db)) == 2 })
	store := policystore.Open(db, nil)
	server, err := sql.Open("pgx", servers.SharedPostgres(t).DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	admit := func(yes bool) {
		t.Helper()
		var name string
		if err := db.QueryRowContext(t.Context(), `SELECT current_database()`).Scan(&name); err != nil {
			t.Fatal(err)
		}
		if _, err := server.ExecContext(t.Context(), fmt.Sprintf(`ALTER DATABASE %q ALLOW_CONNECTIONS %v`, name, yes)); err != nil {
			t.Fatal(err)
		}
	}
	admit(false)
	for _, pid := range listeners(t, db) {
		if _, err := db.ExecContext(t.Context(), `SELECT pg_terminate_backend($1)`, pid); err != nil {
			t.Fatal(err)
		}
	}
	soon(t, "both say that they hear nothing", func() bool {
		return strings.Count(looking.log.String(), "not heard at once") == 1 && strings.Count(hearing.log.String(), "not heard at once") == 1
	})
	version := raise(t, store, 7)
	soon(t, "the change is found by looking", func() bool { return looking.watcher.Current().Version == version })
	if got := hearing.watcher.Current().Version; got != 0 {
		t.Errorf("the node that looks once a minute is at version %d", got)
	}
	admit(true)
	soon(t, "the change is heard of after the connection is back", func() bool { return hearing.watcher.Current().Version == version })
	version = raise(t, store, 8)
	soon(t, "the next change is heard", func() bool { return hearing.watcher.Current().Version == version })
	for _, text := range []string{"not heard at once", "heard again"} {
		if n := strings.Count(hearing.log.String(), text); n != 1 {
			t.Errorf("%q was logged %d times", text, n)
		}
	}
}
