package faults

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/test/broker"
	"github.com/budgetd/budgetd/test/servers"
)

// fleetSize is how many brokers share the servers.
const fleetSize = 3

// fleet is brokers that come back with their data directory, and so with what
// is in their spool, on a Redis that can be set back and a PostgreSQL.
type fleet struct {
	tb       testing.TB
	redis    *servers.RedisProcess
	postgres *servers.PostgresProcess
	database string // DSN
	dump     string // the file that Redis loads when it starts
	saved    string // an older dump
	key      string // reaches every account, as an admin
	args     [fleetSize][]string

	mu      sync.RWMutex
	brokers [fleetSize]*broker.Broker
	clients [fleetSize]*budget.Client // nil while the broker is down
}

func startFleet(tb testing.TB, policy string) *fleet {
	tb.Helper()
	home := tb.TempDir()
	f := &fleet{tb: tb, dump: filepath.Join(home, "dump.rdb"), saved: filepath.Join(home, "older.rdb")}
	// Redis writes a dump when it is told to, and loads what lies there.
	f.redis = servers.NewRedis(tb, "--dir", home, "--dbfilename", "dump.rdb", "--save", "")
	f.postgres = servers.NewPostgres(tb)
	f.database = f.postgres.FreshDatabase(tb)
	broker.Apply(tb, policy, "--postgres", f.database, "--single-node")
	f.key = strings.TrimSpace(broker.Run(tb, "key", "create", "faults", "--admin", "--json=false", "--postgres", f.database, "--single-node"))
	for n := range f.args {
		f.args[n] = []string{
			"--redis", f.redis.URL(), "--postgres", f.database, "--data", tb.TempDir(),
			// What callers of a busy machine set.
			"--deadline", "1s", "--log-level", "error",
		}
		f.start(n)
	}
	return f
}

// start starts a broker that is down.
func (f *fleet) start(n int) {
	f.tb.Helper()
	b := broker.Start(f.tb, f.args[n]...)
	client, err := budget.New(b.URL, f.key)
	if err != nil {
		f.tb.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.brokers[n], f.clients[n] = b, client
}

// kill ends a broker with SIGKILL.
func (f *fleet) kill(n int) {
	f.mu.Lock()
	b := f.brokers[n]
	f.clients[n] = nil
	f.mu.Unlock()
	b.Kill()
}

// client returns the n-th broker's client, or the next one's while it is down.
func (f *fleet) client(n int) *budget.Client {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for range f.clients {
		if c := f.clients[n%fleetSize]; c != nil {
			return c
		}
		n++
	}
	return nil
}

// save keeps Redis as it is now, for setBack.
func (f *fleet) save() {
	f.tb.Helper()
	if err := f.redis.Client(f.tb).Save(context.Background()).Err(); err != nil {
		f.tb.Fatal(err)
	}
	f.move(f.dump, f.saved)
}

func (f *fleet) move(from, to string) {
	f.tb.Helper()
	if err := os.Rename(from, to); err != nil {
		f.tb.Fatal(err)
	}
}

// setBack starts Redis, which is down, with what save kept.
func (f *fleet) setBack() {
	f.tb.Helper()
	f.move(f.saved, f.dump)
	f.redis.Restart()
	f.move(f.dump, f.saved)
}

// books opens the ledger's tables.
func (f *fleet) books() *pgxpool.Pool {
	f.tb.Helper()
	pool, err := pgxpool.New(context.Background(), f.database)
	if err != nil {
		f.tb.Fatal(err)
	}
	f.tb.Cleanup(pool.Close)
	return pool
}
