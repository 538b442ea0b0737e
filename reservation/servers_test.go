package reservation_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/ledger/pgledger"
	"github.com/budgetd/budgetd/reservation/redisstore"
	"github.com/budgetd/budgetd/reservation/storetest"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // servers are killed on purpose here
	servers.Main(m)
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// serverRig is a rig on a Redis of its own and on PostgreSQL.
type serverRig struct {
	*rig
	redis *servers.RedisProcess
	pool  *pgxpool.Pool
}

func newServerRig(tb testing.TB, policyYAML string, redisArgs ...string) *serverRig {
	tb.Helper()
	r := &serverRig{rig: &rig{tb: tb, clock: storetest.NewClock(), policy: &fixedPolicy{}}}
	r.setPolicy(policyYAML)
	r.redis = servers.NewRedis(tb, redisArgs...)
	opts, err := redisstore.Options(r.redis.URL() + "?dial_timeout=10s&read_timeout=10s&write_timeout=10s&pool_timeout=10s")
	if err != nil {
		tb.Fatal(err)
	}
	engine, err := redisstore.Connect(opts, redisstore.Config{Clock: r.clock.Now, VerifyEvery: time.Millisecond})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { engine.Close() })
	r.engine = &swappedStore{engine: engine}
	r.pool, err = pgxpool.New(context.Background(), servers.MigratedDatabase(tb))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.pool.Close)
	books, err := pgledger.New(context.Background(), pgledger.Pools{Main: r.pool}, r.clock.Now())
	if err != nil {
		tb.Fatal(err)
	}
	r.ledger = &swappedLedger{Ledger: books}
	r.start(r.ledger)
	return r
}
