package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
// accounts whose instant has come, the earliest first. What fails on one
// primary, or in one account, keeps nothing else from being swept: it is counted
// by the metrics, and an error only when nothing could be swept at all. The
// answer then still has the epoch, if it is known.
func (s *Store) Sweep(ctx context.Context, most int) (reservation.SweepAnswer, error) {
	if most < 1 {
		return reservation.SweepAnswer{}, fmt.Errorf("max is %d, at least 1 is accepted", most)
	}
	epoch, now, away, err := s.readEpoch(ctx)
	if err != nil {
		return reservation.SweepAnswer{}, unavailable(err)
	}
	answer := reservation.SweepAnswer{Now: now, Epoch: epoch}
	due, more, err := s.dueSpaces(ctx, now)
	if err != nil {
		return answer, unavailable(err)
	}
	answer.More = more
	var failed error
	swept := false
	for _, d := range due {
		left := most - len(answer.Pending)
		if left == 0 {
			answer.More = true
			break
		}
		n, err := s.nodeFor(ctx, d.hash())
		if err != nil || away[n] {
			continue
		}
		visit := s.visit
		if d.pool {
			visit = s.visitPool
		}
		err = visit(ctx, d.space, left, &answer)
		switch {
		case err == nil:
			swept = true
		case errors.Is(err, reservation.ErrNewerLayout):
			// an upgraded node's to sweep; the metrics count it
		case errors.Is(err, reservation.ErrUnavailable):
			away[n], failed = true, err
		default:
			failed = err // a damaged account
		}
	}
	if swept {
		failed = nil
	}
	return answer, failed
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
	_, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard := range accounts {
			accounts[shard] = p.ZRangeByScoreWithScores(ctx, s.tag('s', shard)+"due", come)
		}
		for shard := range pools {
			pools[shard] = p.ZRangeByScoreWithScores(ctx, s.tag('p', shard)+"due", come)
		}
		return nil
	})
	read := false // an index; those of a primary that is away are left out
	collect := func(cmds []*redis.ZSliceCmd, pool bool) {
		for _, cmd := range cmds {
			if cmd.Err() != nil {
				continue
			}
			read = true
			for _, z := range cmd.Val() {
				d := dueSpace{pool: pool, at: z.Score}
				if name := fmt.Sprint(z.Member); pool {
					d.space = s.pool(name)
				} else {
					d.space = s.account(name)
				}
				due = append(due, d)
			}
		}
	}
	collect(accounts, false)
	collect(pools, true)
	if !read {
		return nil, false, err
	}
	slices.SortFunc(due, func(a, b dueSpace) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.name, b.name))
	})
	if len(due) > sweepAccounts {
		return due[:sweepAccounts], true, nil
	}
	return due, false, nil
}

func unavailable(err error) error {
	if errors.Is(err, reservation.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", reservation.ErrUnavailable, err)
}
