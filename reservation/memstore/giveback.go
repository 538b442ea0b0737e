package memstore

import (
	"context"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// GiveBack implements reservation.Store.
func (s *Store) GiveBack(ctx context.Context, account string, holds []reservation.Hold) (reservation.GiveBackAnswer, error) {
	if err := reservation.ValidateGiveBack(account, holds); err != nil {
		return reservation.GiveBackAnswer{}, err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return reservation.GiveBackAnswer{}, err
	}
	defer s.mu.Unlock()
	answer := reservation.GiveBackAnswer{Now: at(now)}
	a := s.accounts[account]
	if a != nil {
		s.prepare(a, now)
		defer s.settle(a)
	}
	for i := range holds {
		h := &holds[i]
		var given quota.Amount
		if c := s.lookup(a, h); c != nil {
			at, booked := c.at(now), quota.Amount(0)
			if c.start > now {
				booked = quota.Amount(c.booked)
			}
			if given = c.giveBack(h.Amount, booked, at); given > 0 {
				c.passStart(now)
			}
			s.release(c, now)
		}
		l := s.look(s.lookup(a, h), h, now)
		answer.Given = append(answer.Given, given)
		answer.Levels = append(answer.Levels, l.level(h, now))
	}
	return answer, nil
}

// giveBack fills the bucket by at most amount, and says by how much.
func (b *bucketState) giveBack(amount, booked quota.Amount, now int64) quota.Amount {
	if now >= b.fullAt {
		return 0
	}
	params := b.params
	level, remainder := b.levelFor(&params, now)
	if lacks := params.Capacity - booked - level; lacks < amount {
		amount = max(lacks, 0)
	}
	if amount == 0 {
		return 0 // what is not changed is not written
	}
	level, remainder = params.GiveBeside(level, remainder, amount, booked)
	b.put(&params, level, remainder, now)
	return amount
}
