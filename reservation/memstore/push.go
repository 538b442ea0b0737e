package memstore

import (
	"context"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Push implements reservation.Store.
func (s *Store) Push(ctx context.Context, account string, usage []reservation.CounterUsage) error {
	if err := reservation.ValidatePush(account, usage); err != nil {
		return err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	a := s.accounts[account]
	if a == nil {
		return nil
	}
	s.prepare(a, now)
	defer s.settle(a)
	for i := range usage {
		u := &usage[i]
		c := s.lookup(a, &reservation.Hold{Counter: u.Counter, Kind: quota.KindQuota, Period: u.Period})
		if c != nil && c.incarnation == s.incarnation && !c.quotaOver(now) && u.Version >= c.version {
			c.used, c.version = u.Used, u.Version
		}
	}
	return nil
}
