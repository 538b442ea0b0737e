package redisstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/storetest"
	"github.com/budgetd/budgetd/test/servers"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // servers are killed on purpose here
	servers.Main(m)
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// patient gives a server on a busy test machine time to answer.
func patient(tb testing.TB, address string) *redis.UniversalOptions {
	tb.Helper()
	separator := "?"
	if strings.Contains(address, "?") {
		separator = "&"
	}
	opts, err := Options(address + separator + "dial_timeout=10s&read_timeout=10s&write_timeout=10s&pool_timeout=10s")
	if err != nil {
		tb.Fatal(err)
	}
	return opts
}

func open(tb testing.TB, opts *redis.UniversalOptions, cfg Config) *Store {
	tb.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = servers.Prefix(tb)
	}
	s, err := Connect(opts, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close the store: %v", err)
		}
	})
	return s
}

func within(tb testing.TB, d time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	tb.Cleanup(cancel)
	return ctx
}

// TestConformanceSingle runs the suite on one Redis.
func TestConformanceSingle(t *testing.T) {
	storetest.Run(t, func(tb testing.TB, clock *storetest.Clock) storetest.Engine {
		server := servers.NewRedis(tb, "--enable-debug-command", "yes")
		s := open(tb, patient(tb, server.URL()), Config{Clock: clock.Now})
		admin := server.Client(tb)
		return storetest.Engine{
			Store:    s,
			LoseData: server.FlushAll,
			Drift: func(account string, c reservation.Counter, p quota.Period, held, unposted quota.Amount) {
				drift(tb, s, account, c, p, held, unposted)
			},
			Incarnate: func() {
				// What a promotion does to the history, and to the connections.
				ctx := within(tb, 10*time.Second)
				if err := admin.Do(ctx, "DEBUG", "CHANGE-REPL-ID").Err(); err != nil {
					tb.Fatal(err)
				}
				if err := admin.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
					tb.Fatal(err)
				}
			},
		}
	})
}

// TestConformanceCluster runs the suite on a Cluster of three primaries.
func TestConformanceCluster(t *testing.T) {
	storetest.Run(t, func(tb testing.TB, clock *storetest.Clock) storetest.Engine {
		cluster := servers.NewRedisCluster(tb, "--enable-debug-command", "yes")
		s := open(tb, patientCluster(tb, cluster.Addrs()), Config{Clock: clock.Now})
		return storetest.Engine{
			Store: s,
			LoseData: func() {
				for _, node := range cluster.Nodes {
					node.FlushAll()
				}
			},
			Drift: func(account string, c reservation.Counter, p quota.Period, held, unposted quota.Amount) {
				drift(tb, s, account, c, p, held, unposted)
			},
			SplitPools: true,
		}
	})
}

func patientCluster(tb testing.TB, addrs []string) *redis.UniversalOptions {
	tb.Helper()
	return patient(tb, "redis://"+strings.Join(addrs, ",")+"?cluster=true")
}
