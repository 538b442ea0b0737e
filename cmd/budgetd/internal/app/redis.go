package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/config"
	"github.com/budgetd/budgetd/reservation/redisstore"
)

// giveTime stretches the engine's own timeouts, which fit the default deadline,
// for who gives calls more time. What the URL states stays.
func giveTime(options *redis.UniversalOptions, deadline time.Duration) {
	standard := config.Default().Deadline
	if deadline <= standard {
		return
	}
	for timeout, usual := range map[*time.Duration]time.Duration{
		&options.DialTimeout:  redisstore.DefaultDialTimeout,
		&options.ReadTimeout:  redisstore.DefaultIOTimeout,
		&options.WriteTimeout: redisstore.DefaultIOTimeout,
		&options.PoolTimeout:  redisstore.DefaultPoolTimeout,
	} {
		if *timeout == usual {
			*timeout = time.Duration(float64(usual) * float64(deadline) / float64(standard))
		}
	}
}

// startIOTimeout is how long the look at the start may wait for a Redis: unlike
// a call, it may.
const startIOTimeout = 3 * time.Second

// openRedis connects the engine, after a look at the servers. The error lists
// what is wrong with them.
func openRedis(ctx context.Context, c config.Config, registry prometheus.Registerer, log *slog.Logger) (*redisstore.Store, error) {
	clientLog.to.Store(log)
	options, err := redisstore.Options(c.Redis.Reveal())
	if err != nil {
		return nil, &config.Error{Setting: "redis", Problem: err.Error()}
	}
	if err := lookAtRedis(ctx, *options, c.KeyPrefix); err != nil {
		return nil, err
	}
	giveTime(options, c.Deadline)
	return redisstore.Connect(options, redisstore.Config{Prefix: c.KeyPrefix, Registerer: registry})
}

func lookAtRedis(ctx context.Context, options redis.UniversalOptions, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = startIOTimeout, startIOTimeout, startIOTimeout, startIOTimeout
	patient, err := redisstore.Connect(&options, redisstore.Config{Prefix: prefix})
	if err != nil {
		return err
	}
	var problems []error
	for _, problem := range patient.Check(ctx) {
		problems = append(problems, errors.New(problem.String()))
	}
	return errors.Join(append(problems, patient.Close())...)
}

// clientLog takes what the Redis client says of single connections: during an
// outage that is a line for every attempt. What an operator must know, the
// engine's guard says once. The client has one logger for the whole process,
// which may be set only before there are connections.
var clientLog redisLog

func init() { redis.SetLogger(&clientLog) }

type redisLog struct{ to atomic.Pointer[slog.Logger] }

func (r *redisLog) Printf(ctx context.Context, format string, args ...any) {
	if log := r.to.Load(); log != nil && log.Enabled(ctx, slog.LevelDebug) {
		log.DebugContext(ctx, "the Redis client says", "text", fmt.Sprintf(format, args...))
	}
}
