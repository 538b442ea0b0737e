package lab

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/reservation"
	"github.com/budgetd/budgetd/reservation/holdlab"
	"github.com/budgetd/budgetd/reservation/redisstore"
)

// unlinkAtOnce is how many keys are removed by one command.
const unlinkAtOnce = 500

const patience = 10 * time.Second

// OnRedis opens engines on a Redis. Each has keys of its own, below a prefix that
// nothing else uses, and removes them when it is closed.
func OnRedis(url string) (holdlab.Engines, error) {
	options, err := redisstore.Options(url)
	if err != nil {
		return nil, err
	}
	// Nobody waits for a replay: a slow moment must not end it.
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = patience, patience, patience, patience
	var opened atomic.Int64
	run := time.Now().UnixNano()
	return func(clock func() time.Time) (reservation.Store, error) {
		prefix := fmt.Sprintf("budgetd-lab-%d-%d", run, opened.Add(1))
		store, err := redisstore.Connect(options, redisstore.Config{Prefix: prefix, Clock: clock})
		if err != nil {
			return nil, err
		}
		return &scratch{Store: store, client: redis.NewUniversalClient(options), prefix: prefix}, nil
	}, nil
}

// scratch is an engine that leaves nothing.
type scratch struct {
	reservation.Store
	client redis.UniversalClient
	prefix string
}

func (s *scratch) Close() error {
	ctx := context.Background()
	err := s.Store.Close()
	var keys []string
	remove := func() {
		if len(keys) > 0 {
			err = errors.Join(err, s.client.Unlink(ctx, keys...).Err())
			keys = keys[:0]
		}
	}
	found := s.client.Scan(ctx, 0, s.prefix+"*", unlinkAtOnce).Iterator()
	for found.Next(ctx) {
		if keys = append(keys, found.Val()); len(keys) == unlinkAtOnce {
			remove()
		}
	}
	remove()
	return errors.Join(err, found.Err(), s.client.Close())
}
