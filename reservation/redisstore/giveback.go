package redisstore

import (
	"context"
	"errors"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// GiveBack is one script call, and one more for each pool on a Cluster.
func (s *Store) GiveBack(ctx context.Context, account string, holds []reservation.Hold) (reservation.GiveBackAnswer, error) {
	if err := reservation.ValidateGiveBack(account, holds); err != nil {
		return reservation.GiveBackAnswer{}, err
	}
	given, states, now, err := s.giveBack(ctx, s.account(account), holds, false)
	if err != nil {
		return reservation.GiveBackAnswer{}, err
	}
	legs := s.legs(holds)
	for i := range legs {
		// One that can't be reached keeps what it has, and shows nothing.
		own, there, at, err := s.giveBack(ctx, s.pool(legs[i].pool), legs[i].holds, true)
		if err != nil {
			s.metrics.legsLeft.Inc()
			continue
		}
		legs[i].spread(there, states, at)
		for j, index := range legs[i].index {
			given[index] = own[j]
		}
	}
	return reservation.GiveBackAnswer{Given: given, Levels: showAll(holds, states, now), Now: instant(now)}, nil
}

func (s *Store) giveBack(ctx context.Context, p space, holds []reservation.Hold, leg bool) ([]quota.Amount, []counterState, int64, error) {
	plan, own := s.plan(p, holds, 0, leg)
	a := make(args, 0, 64+len(plan))
	a.int(s.now())
	a.str(p.name)
	a.bytes(plan)
	a.int(s.idle)
	out, err := s.run(ctx, scriptGiveBack, append([]string{p.hash(), p.dues(), p.index()}, own...), a)
	if err != nil {
		return nil, nil, 0, err
	}
	now := out.int()
	s.reclaimed(out.int())
	given := make([]quota.Amount, len(holds))
	if n := out.list(); n != len(holds) && out.err == nil {
		return nil, nil, 0, unavailable(errors.New("a giveback answers another number of holds"))
	}
	for i := range given {
		given[i] = quota.Amount(out.int())
	}
	states := out.levels(holds)
	return given, states, now, out.err
}
