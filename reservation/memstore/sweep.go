package memstore

import (
	"context"

	"github.com/budgetd/budgetd/reservation"
)

// Bounds of one Sweep, which holds the lock.
const (
	sweepSpaces  = 1024 // accounts and pools
	sweepExpired = 1024 // leases
	sweepTidied  = 4096 // records and counters forgotten
)

// Sweep implements reservation.Store. It also forgets what has had its time.
func (s *Store) Sweep(ctx context.Context, most int) (reservation.SweepAnswer, error) {
	now, err := s.enter(ctx)
	if err != nil {
		return reservation.SweepAnswer{}, err
	}
	defer s.mu.Unlock()
	answer := reservation.SweepAnswer{Now: at(now), Epoch: s.name}
	tidied := 0
	for spaces := 0; len(s.due) > 0 && s.due[0].dueAt <= now; spaces++ {
		if spaces == sweepSpaces {
			answer.More = true
			break
		}
		a := s.due[0]
		answer.Expired += s.reclaim(a, now, sweepExpired-answer.Expired)
		for len(answer.Pending) < most && len(a.waiting) > 0 && a.waiting[0].due <= now {
			r := a.waiting[0]
			r.due = now + reservation.OutboxRetry.Microseconds()
			a.waiting.down(0)
			answer.Pending = append(answer.Pending, reservation.Pending{Account: a.name, ID: r.id, Record: r.show(now)})
		}
		tidied += s.tidy(a, now, sweepTidied-tidied)
		a.dueAt = a.next()
		s.due.down(a.index)
		s.settle(a)
		if a.dueAt <= now && a.index >= 0 { // one of the bounds was met
			answer.More = true
			break
		}
	}
	return answer, nil
}
