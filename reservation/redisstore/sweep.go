package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/budgetd/budgetd/reservation"
)

// Bounds of one Sweep.
const (
	sweepAccounts = 256 // accounts visited
	sweepLeases   = 256 // leases ended in one visit
)

// Sweep looks into the shards' indexes, which the scripts keep, and visits the
// accounts whose instant has come, the earliest first.
func (s *Store) Sweep(ctx context.Context, most int) (reservation.SweepAnswer, error) {
	if most < 1 {
		return reservation.SweepAnswer{}, fmt.Errorf("max is %d, at least 1 is accepted", most)
	}
	now, err := s.sweepTime(ctx)
	if err != nil {
		return reservation.SweepAnswer{}, unavailable(err)
	}
	answer := reservation.SweepAnswer{Now: now}
	due, more, err := s.dueSpaces(ctx, now)
	if err != nil {
		return reservation.SweepAnswer{}, unavailable(err)
	}
	answer.More = more
	for _, d := range due {
		left := most - len(answer.Pending)
		if left == 0 {
			answer.More = true
			break
		}
		visit := s.visit
		if d.pool {
			visit = s.visitPool
		}
		err := visit(ctx, d.space, left, &answer)
		if errors.Is(err, reservation.ErrNewerLayout) {
			continue // an upgraded node's to sweep; the metrics count it
		}
		if err != nil {
			if len(answer.Pending) > 0 {
				// What was handed out is due again only after a while: give it
				// to the caller; the rest waits for the next sweep.
				answer.More = true
				break
			}
			return reservation.SweepAnswer{}, err
		}
	}
	return answer, nil
}

func (s *Store) visit(ctx context.Context, p space, most int, answer *reservation.SweepAnswer) error {
	a := make(args, 0, 64)
	a.int(s.now())
	a.str(p.name)
	a.int(int64(most))
	a.int(sweepLeases)
	a.int(reservation.OutboxRetry.Microseconds())
	a.int(s.idle)
	out, err := s.run(ctx, scriptSweep, []string{p.hash(), p.dues(), p.index()}, a)
	if err != nil {
		return err
	}
	answer.Expired += s.reclaimed(out.int())
	if out.int() == 1 {
		answer.More = true
	}
	for n := out.list(); n > 0 && out.err == nil; n -= 2 {
		pending := reservation.Pending{Account: p.name}
		copy(pending.ID[:], out.bytes())
		pending.Record = out.record()
		answer.Pending = append(answer.Pending, pending)
	}
	return out.err
}

type dueSpace struct {
	space
	pool bool // a pool's legs
	at   float64
}

// dueSpaces reads the indexes of all shards in one pipeline.
func (s *Store) dueSpaces(ctx context.Context, now time.Time) (due []dueSpace, more bool, err error) {
	accounts := make([]*redis.ZSliceCmd, shards)
	var pools []*redis.ZSliceCmd
	if s.cluster != nil {
		pools = make([]*redis.ZSliceCmd, shards)
	}
	come := &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(now.UnixMicro(), 10), Count: sweepAccounts}
	if _, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard := range accounts {
			accounts[shard] = p.ZRangeByScoreWithScores(ctx, s.tag('s', shard)+"due", come)
		}
		for shard := range pools {
			pools[shard] = p.ZRangeByScoreWithScores(ctx, s.tag('p', shard)+"due", come)
		}
		return nil
	}); err != nil {
		return nil, false, err
	}
	for _, cmd := range accounts {
		for _, z := range cmd.Val() {
			due = append(due, dueSpace{s.account(fmt.Sprint(z.Member)), false, z.Score})
		}
	}
	for _, cmd := range pools {
		for _, z := range cmd.Val() {
			due = append(due, dueSpace{s.pool(fmt.Sprint(z.Member)), true, z.Score})
		}
	}
	slices.SortFunc(due, func(a, b dueSpace) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.name, b.name))
	})
	if len(due) > sweepAccounts {
		return due[:sweepAccounts], true, nil
	}
	return due, false, nil
}

// sweepTime is the engine's clock, on a Cluster the one that is ahead: an
// account that is visited too early by its own node's clock waits there.
func (s *Store) sweepTime(ctx context.Context) (time.Time, error) {
	if s.clock != nil {
		return s.clock().UTC().Truncate(time.Microsecond), nil
	}
	if s.cluster == nil {
		now, err := s.single.client.Time(ctx).Result()
		return now.UTC(), err
	}
	times := make(chan int64, 1024)
	err := s.cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		now, err := c.Time(ctx).Result()
		if err == nil {
			times <- now.UnixMicro()
		}
		return err
	})
	close(times)
	ahead := int64(math.MinInt64)
	for at := range times {
		ahead = max(ahead, at)
	}
	return instant(ahead), err
}

func unavailable(err error) error {
	return fmt.Errorf("%w: %w", reservation.ErrUnavailable, err)
}
